"""Lakehouse tables against Spark's own plain writes."""
