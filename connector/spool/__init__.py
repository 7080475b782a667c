"""The spool: epochs on disk, sealed by a manifest each, and what consumers have done with them."""
