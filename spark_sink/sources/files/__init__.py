"""Reads files that the file sink wrote, as a Spark batch source."""
