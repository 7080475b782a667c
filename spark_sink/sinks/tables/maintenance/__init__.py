"""The maintenance of tables by their one writer: fewer files, and no versions that nobody needs any more."""
