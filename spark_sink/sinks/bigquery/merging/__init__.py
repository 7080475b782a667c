"""Merges loaded rows into tables: one line a row, load jobs, MERGE statements."""
