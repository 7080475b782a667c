"""Probes: what services do that their pages do not promise."""
