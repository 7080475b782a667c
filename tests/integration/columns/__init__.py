"""Columns that are excluded or hashed, end to end."""
