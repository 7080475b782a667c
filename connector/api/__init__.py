"""The implementation of the public API (:mod:`connector`); docs/embedding.md describes it."""
