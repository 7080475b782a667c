"""Mode history of tables, and what histories are compared with."""
