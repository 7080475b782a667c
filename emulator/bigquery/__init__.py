"""A test double of BigQuery: its REST and Storage Write APIs, as far as the sink uses them."""
