"""Reads a change stream: one task a partition, the watermark, the seal."""
