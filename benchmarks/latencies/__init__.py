"""Measures of the time from a commit to its event and to its file."""
