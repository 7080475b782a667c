"""Keeps the sink within BigQuery's quotas."""
