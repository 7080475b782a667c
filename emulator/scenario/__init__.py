"""A scripted history of a change stream: transactions, and partitions that split, merge and move."""
