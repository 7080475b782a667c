"""Requests of commands to the daemon that holds a spool, and its answers, as documents in that spool."""
