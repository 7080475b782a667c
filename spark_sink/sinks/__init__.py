"""Destinations, a folder each, and what they share."""
