"""The process of a backfill: its tasks read partitions of tables into its spool, and its sink delivers them."""
