"""A campaign against backfills: a large database under write load, a sink, kills, and the rows that it comes to."""
