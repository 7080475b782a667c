"""Reading on Spark's executors: its cost against one process, and thousands of partitions."""
