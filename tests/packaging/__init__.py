"""Tests of what is published: its declarations, its contents, and that it runs outside a clone."""
