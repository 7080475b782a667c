"""Tables that have lost rows at the destination."""
