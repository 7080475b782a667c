"""Lakehouse tables that are read for `verify`, and repaired."""
