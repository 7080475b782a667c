"""The process of a backfill: its tasks read partitions of tables into the backfill's spool, and its sink delivers it."""
