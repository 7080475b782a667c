"""Tests of reading tables as of a timestamp."""
