"""``spanner-cdc discover``: change streams, what they watch, and what sinks make of it."""
