"""A random history of DDL between two databases, and a sink that is down half of the time."""
