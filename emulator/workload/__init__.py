"""Random transactions on a sample database, and the journal of what was committed."""
