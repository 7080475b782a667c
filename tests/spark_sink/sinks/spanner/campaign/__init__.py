"""The campaign of the Spanner sink."""
