"""Tests of the reader on executors."""
