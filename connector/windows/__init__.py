"""Reads one share of a window, on an executor or anywhere else."""
