"""Where a spool lies: a local folder, or a bucket of Cloud Storage."""
