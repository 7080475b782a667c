"""Repairs of destinations under load."""
