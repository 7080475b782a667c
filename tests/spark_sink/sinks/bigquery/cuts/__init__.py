"""Tests of the cuts that the BigQuery sink publishes."""
