"""Updates that hold only what changed become whole rows, read from Spanner as of their commit."""
