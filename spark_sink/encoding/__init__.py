"""Events to bytes: JSON lines, Avro, OpenCDC, and columns of Protocol Buffers."""
