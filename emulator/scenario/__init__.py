"""Draws the history of a scripted change stream: transactions, and partitions that split, merge and move."""
