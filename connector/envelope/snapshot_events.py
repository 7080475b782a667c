"""Builds the envelope's columns from rows of a table as of one timestamp. Pure.

A row is an event like the INSERT of a change stream that captures NEW_ROW, with ``snapshot`` true. No transaction is
known of it, so the fields of the transaction are null. Its change sequence number sorts before every later change.
"""

from hashlib import blake2b

import numpy as np
import pyarrow as pa

from connector.core.schemas import TableSchema
from connector.core.text_columns import change_sequence_numbers, splice, uuid_texts
from connector.core.timestamps import format_rfc3339
from connector.envelope.envelope import SCHEMA, SOURCE_METADATA, Source, sort_keys, version_8

INSERT = "INSERT"
READ_METHOD = "spanner-backfill"
RECORD_SEQUENCE = "00000000"
"""The record sequence of every row of a snapshot; a number of zero."""


class SnapshotEnvelope:
    """Builds the events of rows.

    Args:
        source: the change stream whose tables are read.
        stream_name: the configured stream name, or None for that of the source.
        read_method: the read method of the events.
        timestamp: when the rows were read as of, nanoseconds since the epoch.
    """

    def __init__(
        self, source: Source, *, stream_name: str | None, read_method: str = READ_METHOD, timestamp: int
    ) -> None:
        self._source = source
        self._stream_name = stream_name or source.stream_name
        self._read_method = read_method
        self._timestamp = timestamp
        self._origin = f"{source.database_name}\0{source.change_stream}\0".encode()

    def build(
        self,
        keys: pa.StringArray,
        new_values: pa.StringArray,
        schema: TableSchema,
        schema_key: str,
        epoch: int,
        read_timestamp: int,
    ) -> pa.RecordBatch:
        """One row of :data:`connector.envelope.envelope.SCHEMA` for each row of a table, in their order.

        Args:
            keys: the JSON objects of the columns of the key, in the order of the key.
            new_values: the JSON objects of the other columns.
            schema: the table.
            schema_key: its key.
            epoch: the number of the epoch.
            read_timestamp: when the rows were received, nanoseconds since the epoch.
        """
        rows, at, source = len(keys), self._timestamp, self._source
        named_schema, name = source.qualified(schema.table)
        known: dict[str, object] = {
            "commit_timestamp": format_rfc3339(at),
            "snapshot": True,
            "project_id": source.project,
            "instance_id": source.instance,
            "database_id": source.database,
            "change_stream_name": source.change_stream,
            "schema": named_schema,
            "database": source.database,
            "table": name,
            "record_sequence": RECORD_SEQUENCE,
            "mod_index": 0,
            "system_transaction": False,
            "value_capture_type": "NEW_ROW",
            "mod_type": INSERT,
            "change_type": INSERT,
            "primary_keys": list(schema.primary_keys),
            "is_deleted": False,
        }
        times, zeros = np.full(rows, at, np.int64), np.zeros(rows, np.int64)
        metadata = [_constant(known.get(field.name), field.type, rows) for field in SOURCE_METADATA]
        columns = {
            "stream_name": self._stream_name,
            "read_method": self._read_method,
            "object": schema.table,
            "schema_key": schema_key,
            "uuid": self._uuids(schema.table, keys),
            "read_timestamp": read_timestamp // 1000,
            "source_timestamp": at // 1000,
            "sort_keys": sort_keys(times, pa.repeat(RECORD_SEQUENCE, rows), zeros),
            "change_sequence_number": change_sequence_numbers(times, zeros, zeros),
            "source_metadata": pa.StructArray.from_arrays(metadata, fields=list(SOURCE_METADATA)),
            "payload": splice(keys, new_values),
            "before": None,
            "epoch": epoch,
        }
        arrays = [
            value if isinstance(value, pa.Array) else _constant(value, field.type, rows)
            for value, field in zip(columns.values(), SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _uuids(self, table: str, keys: pa.StringArray) -> pa.Array:
        """Version 8 UUIDs, derived from the database, the change stream, the table, the timestamp and the key."""
        origin = self._origin + f"{table}\0{self._timestamp}\0".encode()
        names = keys.cast(pa.binary()).to_pylist()
        return uuid_texts(*version_8([blake2b(origin + name, digest_size=16).digest() for name in names]))


def _constant(value: object, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)
