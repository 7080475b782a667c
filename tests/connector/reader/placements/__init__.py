"""Tests of change streams with a read function for each placement."""
