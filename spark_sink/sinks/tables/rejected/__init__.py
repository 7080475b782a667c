"""Rejected rows: changes that a table cannot take, and the later changes of their rows that wait for them."""
