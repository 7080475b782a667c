"""Turns change events into rows of BigQuery, and says which rows BigQuery cannot hold."""
