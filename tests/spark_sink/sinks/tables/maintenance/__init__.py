"""Tests of the maintenance of tables."""
