"""Stands before pandas."""

raise ImportError("tests hide pandas", name="pandas")
