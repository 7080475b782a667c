"""Drivers that read Spanner with tasks of Spark: backfills, and windows of a change stream."""
