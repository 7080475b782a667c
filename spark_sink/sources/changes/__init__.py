"""The Spark source: epochs of a spool as micro-batches."""
