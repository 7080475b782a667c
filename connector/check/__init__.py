"""What `spanner-cdc check` finds, and what `run` and `read` refuse before they open anything."""
