"""What stands behind the names of :mod:`connector`, the public API; docs/embedding.md describes it."""
