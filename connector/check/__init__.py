"""The checks of `spanner-cdc check`, and those that `run` and `read` make before they open anything."""
