"""An event's columns and their text: Datastream's envelope, OpenCDC, and the Avro schema. Pure."""
