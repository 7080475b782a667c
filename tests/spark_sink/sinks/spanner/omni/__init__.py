"""The sink between servers of Spanner Omni."""
