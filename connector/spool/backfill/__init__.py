"""Backfills: every row of tables as of one timestamp, in a spool of its own below the change stream's."""
