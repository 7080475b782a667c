"""Messages of a change stream's queries to records: a plain walk over each row, and fast decoders for many rows."""
