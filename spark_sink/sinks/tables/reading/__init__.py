"""The tables of the sink, read back."""
