"""Reads Cloud Spanner change streams into transaction-complete, commit-ordered epochs."""
