"""A destination that this project knows nothing of: SQLite, registered by an entry point alone."""
