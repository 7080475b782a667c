"""A server that replays a change stream's bytes."""
