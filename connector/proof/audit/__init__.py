"""Compares a spool with what a second read of its change stream returns, transaction by transaction."""
