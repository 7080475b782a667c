"""Worker processes that run partition queries for the reader."""
