"""A double of BigQuery: its REST and Storage Write APIs, as far as the sink calls them."""
