"""Tables of Delta, Iceberg and Parquet."""
