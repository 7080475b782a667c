"""Reads tables as of one timestamp: partitions, their rows as columns, and rows by key."""
