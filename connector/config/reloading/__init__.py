"""The options of an edited configuration that take effect in a running daemon, and those that do not. Pure."""
