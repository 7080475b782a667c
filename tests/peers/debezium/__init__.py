"""The scenarios that Debezium names in its tests of change streams, on the scripted server."""
