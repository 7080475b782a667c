"""The page of troubleshooting by message, made from the source and from remedies that are written here."""
