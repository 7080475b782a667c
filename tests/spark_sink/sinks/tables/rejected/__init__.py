"""Rejected rows of tables."""
