"""Programs that tests start."""
