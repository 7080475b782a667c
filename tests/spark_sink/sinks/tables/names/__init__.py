"""Names that tables and their columns have, and those that formats keep."""
