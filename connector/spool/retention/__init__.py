"""The epochs that a spool keeps: pruning, and the record of the first that is left."""
