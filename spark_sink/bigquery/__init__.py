"""The BigQuery sink."""
