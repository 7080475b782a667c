"""Calls to Cloud Spanner: the client, its transport, partition queries, and what an error means."""
