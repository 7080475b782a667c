"""Streams with a read function for each placement, end to end."""
