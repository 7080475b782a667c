"""Writes changes into the destination: merged by row, planned by table, committed in order."""
