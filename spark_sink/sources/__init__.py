"""Spark's data sources: changes of a spool, a snapshot of a table, files that a sink wrote."""
