"""Tables in BigQuery: creates them, adds columns, and stops those that cannot be written."""
