"""Tables that are written through Spark Connect."""
