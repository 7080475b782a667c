"""Writes the rows of a micro-batch: parts of it, the Storage Write API and its connections."""
