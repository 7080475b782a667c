"""A Spanner server that serves a scenario over gRPC, with faults when asked for."""
