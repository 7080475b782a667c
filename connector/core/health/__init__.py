"""The health of a reader: the states of its stream, and alarms that explain themselves. Pure."""
