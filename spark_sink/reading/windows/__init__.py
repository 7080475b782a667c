"""Reads a change stream on Spark's executors, window by window, into a spool."""
