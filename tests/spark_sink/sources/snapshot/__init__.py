"""Tests of the data source of a table's rows."""
