"""Metrics, the status page, and progress lines."""
