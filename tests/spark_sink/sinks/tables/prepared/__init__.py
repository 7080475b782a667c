"""The preparation of tables, which is remembered from one micro-batch to the next."""
