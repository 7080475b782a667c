"""Change streams with ``per_placement_tvf``: one read function for each placement, which are listed and never built."""
