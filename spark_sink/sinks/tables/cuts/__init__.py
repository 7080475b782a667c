"""Published cuts of lakehouse tables: the table ``_cuts`` beside them, and tables as of a cut."""
