"""What every sink shares: its stream, started batches, dead letters."""
