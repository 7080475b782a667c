"""The data source ``spanner-snapshot``: the rows of a table as of a timestamp."""
