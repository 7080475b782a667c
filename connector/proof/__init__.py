"""Proofs of what was delivered: a spool against its change stream, a destination against tables."""
