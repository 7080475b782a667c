"""Built-in sinks against plain writes of the same rows."""
