"""How a reader is: the states of its stream, and alarms that explain themselves. Pure."""
