"""The Spanner sink: a change stream's transactions, applied to another Spanner database."""
