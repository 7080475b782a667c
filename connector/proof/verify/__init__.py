"""Compares what a destination holds with Spanner's rows as of one timestamp."""
