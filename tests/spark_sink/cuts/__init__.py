"""Published cuts: what they say, and readers that join tables as of them."""
