"""The campaign of lakehouse tables."""
