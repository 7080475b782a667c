"""The process that reads a change stream into a spool, and supervises the sink's process and backfills."""
