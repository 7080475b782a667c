"""Readers with thousands of partitions, or with a long backlog."""
