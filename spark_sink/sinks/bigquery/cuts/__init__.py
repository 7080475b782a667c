"""The cuts that a sink publishes in BigQuery, and views of its tables as of the newest one."""
