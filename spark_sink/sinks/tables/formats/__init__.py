"""The formats of tables: how each is created, widened and committed to, and how it keeps which epochs it has."""
