"""The parts that every sink shares: its stream, started batches, dead letters."""
