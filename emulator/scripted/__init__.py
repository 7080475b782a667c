"""A Spanner server that serves a scenario over gRPC, and injects faults on request."""
