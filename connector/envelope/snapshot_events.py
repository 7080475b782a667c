"""Builds the envelope's columns from rows of a table as of one timestamp. Pure.

A row is an event like the INSERT of a change stream that captures NEW_ROW, with ``snapshot`` true. A row that is not
there is one like a DELETE. No transaction is known of it, so the fields of the transaction are null. Its change
sequence number sorts before every later change.
"""

from hashlib import blake2b

import numpy as np
import pyarrow as pa

from connector.core.schemas import TableSchema
from connector.core.text_columns import change_sequence_numbers, splice, uuid_texts
from connector.core.timestamps import format_rfc3339
from connector.envelope.envelope import SCHEMA, SOURCE_METADATA, Source, sort_keys, version_8

INSERT, DELETE = "INSERT", "DELETE"
READ_METHOD = "spanner-backfill"
REPAIR = "spanner-repair"
"""The read method of rows that a repair delivers."""

RECORD_SEQUENCE = "00000000"
"""The record sequence of every row of a snapshot; a number of zero."""


class SnapshotEnvelope:
    """Builds the events of rows.

    Args:
        source: the change stream whose tables are read.
        stream_name: the configured stream name, or None for that of the source.
        read_method: the read method of the events.
        timestamp: when the rows were read as of, Unix nanoseconds.
    """

    def __init__(
        self, source: Source, *, stream_name: str | None, read_method: str = READ_METHOD, timestamp: int
    ) -> None:
        self._source = source
        self._stream_name = stream_name or source.stream_name
        self._read_method = read_method
        self._timestamp = timestamp
        self._origin = f"{source.database_name}\0{source.change_stream}\0".encode()
        self._known: dict[tuple[str, str], tuple[int, dict[str, pa.Array]]] = {}
        """The constants by the table's schema key and the mod type: how many rows they have, and the columns."""

    def build(
        self,
        keys: pa.StringArray,
        new_values: pa.StringArray,
        schema: TableSchema,
        schema_key: str,
        epoch: int,
        read_timestamp: int,
        *,
        mod_type: str = INSERT,
    ) -> pa.RecordBatch:
        """One row of :data:`connector.envelope.envelope.SCHEMA` for each row of a table, in their order.

        Args:
            keys: the JSON objects of the columns of the key, in the order of the key.
            new_values: the JSON objects of the other columns; empty ones of deleted rows.
            schema: the table.
            schema_key: its key.
            epoch: the number of the epoch.
            read_timestamp: when the rows were received, Unix nanoseconds.
            mod_type: INSERT, or DELETE for rows that are not there.
        """
        rows = len(keys)
        constant = self._constants(rows, schema, schema_key, mod_type)
        metadata = pa.StructArray.from_arrays(
            [constant[name] for name in SOURCE_METADATA.names], fields=list(SOURCE_METADATA)
        )
        columns = {
            "uuid": self._uuids(schema.table, keys),
            "read_timestamp": _repeated(read_timestamp // 1000, SCHEMA.field("read_timestamp").type, rows),
            "source_metadata": metadata,
            "payload": splice(keys, new_values),
            "epoch": _repeated(epoch, pa.int64(), rows),
        }
        return pa.RecordBatch.from_arrays(
            [columns[name] if name in columns else constant[f"/{name}"] for name in SCHEMA.names], schema=SCHEMA
        )

    def _constants(self, rows: int, schema: TableSchema, schema_key: str, mod_type: str) -> dict[str, pa.Array]:
        """The columns that are the same for every row of a table, those of the source metadata by their names alone."""
        about = schema_key, mod_type
        if about not in self._known or self._known[about][0] < rows:
            self._known[about] = rows, self._made(rows, schema, schema_key, mod_type)
        return {name: column.slice(0, rows) for name, column in self._known[about][1].items()}

    def _made(self, rows: int, schema: TableSchema, schema_key: str, mod_type: str) -> dict[str, pa.Array]:
        at, source = self._timestamp, self._source
        named_schema, name = source.qualified(schema.table)
        metadata: dict[str, object] = {
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
            "mod_type": mod_type,
            "change_type": mod_type,
            "primary_keys": list(schema.primary_keys),
            "is_deleted": mod_type == DELETE,
        }
        time, zero = np.array([at], np.int64), np.zeros(1, np.int64)
        event = {
            "/stream_name": self._stream_name,
            "/read_method": self._read_method,
            "/object": schema.table,
            "/schema_key": schema_key,
            "/source_timestamp": at // 1000,
            "/sort_keys": sort_keys(time, pa.array([RECORD_SEQUENCE]), zero)[0].as_py(),
            "/change_sequence_number": change_sequence_numbers(time, zero, zero)[0].as_py(),
            "/before": None,
        }
        kinds = {field.name: field.type for field in SOURCE_METADATA} | {f"/{f.name}": f.type for f in SCHEMA}
        values = {field.name: metadata.get(field.name) for field in SOURCE_METADATA} | event
        return {name: _repeated(value, kinds[name], rows) for name, value in values.items()}

    def _uuids(self, table: str, keys: pa.StringArray) -> pa.Array:
        """Version 8 UUIDs, derived from the database, the change stream, the table, the timestamp and the key."""
        origin = self._origin + f"{table}\0{self._timestamp}\0".encode()
        names = keys.cast(pa.binary()).to_pylist()
        return uuid_texts(*version_8([blake2b(origin + name, digest_size=16).digest() for name in names]))


def _repeated(value: object, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)
