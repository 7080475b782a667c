"""Columns that are excluded or hashed before anything is kept (``source.columns``). Pure."""
