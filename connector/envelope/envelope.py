"""The columns of an event in Datastream's envelope, and how they are built from records. Pure.

The segments of a spool and the micro-batches of Spark have exactly these columns; nothing is converted in between.
Payloads stay in Spanner's own JSON encoding, joined as text. Types are converted when events are written
(:mod:`connector.envelope.events`). The fields are those of the Datastream event page
(https://cloud.google.com/datastream/docs/events-and-streams) and of its Spanner source metadata.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.changes import Changes, Int64s, integers, sequence_numbers
from connector.core.schemas import SchemaRegistry
from connector.core.text_columns import change_sequence_numbers, is_empty, objects, rfc3339_texts, splice, uuid_texts

_VERSION, _NO_VERSION = np.uint64(0x8 << 12), np.uint64((1 << 64) - 1 & ~(0xF << 12))
_VARIANT, _NO_VARIANT = np.uint64(0x2 << 62), np.uint64((1 << 64) - 1 & ~(0x3 << 62))
_Halves = npt.NDArray[np.uint64]
_STRING = pa.string()
_TIMESTAMP = pa.timestamp("us", tz="UTC")

SOURCE_METADATA = pa.struct(
    [
        pa.field("commit_timestamp", _STRING),
        pa.field("snapshot", pa.bool_()),
        pa.field("project_id", _STRING),
        pa.field("instance_id", _STRING),
        pa.field("database_id", _STRING),
        pa.field("change_stream_name", _STRING),
        pa.field("schema", _STRING),
        pa.field("database", _STRING),
        pa.field("table", _STRING),
        pa.field("server_transaction_id", _STRING),
        pa.field("record_sequence", _STRING),
        pa.field("mod_index", pa.int64()),
        pa.field("transaction_tag", _STRING),
        pa.field("system_transaction", pa.bool_()),
        pa.field("number_of_records_in_transaction", pa.int64()),
        pa.field("number_of_partitions_in_transaction", pa.int64()),
        pa.field("is_last_record_in_transaction_in_partition", pa.bool_()),
        pa.field("value_capture_type", _STRING),
        pa.field("mod_type", _STRING),
        pa.field("change_type", _STRING),
        pa.field("primary_keys", pa.list_(pa.field("element", _STRING))),
        pa.field("is_deleted", pa.bool_()),
    ]
)

WHOLE_ROWS = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
"""The value capture types of which every update has all columns
(https://cloud.google.com/spanner/docs/change-streams#value-capture-type)."""

SCHEMA = pa.schema(
    [
        pa.field("stream_name", _STRING),
        pa.field("read_method", _STRING),
        pa.field("object", _STRING),
        pa.field("schema_key", _STRING),
        pa.field("uuid", _STRING),
        pa.field("read_timestamp", _TIMESTAMP),
        pa.field("source_timestamp", _TIMESTAMP),
        pa.field("sort_keys", pa.list_(pa.field("element", _STRING))),
        pa.field("change_sequence_number", _STRING),
        pa.field("source_metadata", SOURCE_METADATA),
        pa.field("payload", _STRING),
        pa.field("before", _STRING),
        pa.field("epoch", pa.int64()),
    ]
)
"""The columns of a segment and of a Spark micro-batch, in order; all may be null."""

DELETE = "DELETE"

# Arrow infers the type of a Python value in every call, which costs as much as a hundred rows.
_DELETED = pa.scalar(DELETE, _STRING)
_NOTHING = pa.scalar(None, _STRING)
_SEPARATOR = pa.scalar("\0", _STRING)


@dataclass(frozen=True, slots=True)
class Source:
    """A change stream of a database; ``default_schema`` is the name of the unnamed schema in events."""

    project: str
    instance: str
    database: str
    change_stream: str
    default_schema: str

    @property
    def database_name(self) -> str:
        """The database's resource name."""
        return f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"

    @property
    def stream_name(self) -> str:
        """The stream name of events if none is configured."""
        return f"projects/{self.project}/locations/global/streams/{self.change_stream}"

    def qualified(self, table: str) -> tuple[str, str]:
        """The schema and the name of a table in events, given as ``table`` or ``schema.table``."""
        schema, dot, name = table.rpartition(".")
        return (schema, name) if dot else (self.default_schema, table)


class EnvelopeBuilder:
    """Builds the envelope's columns from data change records.

    Each column is computed from a whole column of the records, and its values are repeated where a record has several
    mods. Payloads are joined as bytes.

    Args:
        source: the change stream of the records.
        stream_name: the configured stream name, or None for that of the source.
        read_method: the configured read method; ``spanner-cdc`` by default.
    """

    def __init__(self, source: Source, *, stream_name: str | None, read_method: str) -> None:
        self._source = source
        self._stream_name = stream_name or source.stream_name
        self._read_method = read_method
        self._origin = f"{source.database_name}\0{source.change_stream}\0".encode()

    def build(self, changes: Changes, registry: SchemaRegistry, epoch: int) -> pa.RecordBatch:
        """One row of :data:`SCHEMA` for each mod, in the order of the records, which ``registry`` observes."""
        source = self._source
        at, counts = changes.commit_timestamps, changes.mod_counts
        row = _Rows(counts)

        def each(values: object) -> pa.Array:
            return row.repeated(values if isinstance(values, pa.Array) else pa.array(values))

        def named(values: Sequence[object], codes: Int64s, kind: pa.DataType = _STRING) -> pa.Array:
            if len(values) == 1 and kind is _STRING:
                return row.constant(values[0], kind)
            return each(pa.array(values, kind).take(pa.array(codes)))

        schemas, runs = registry.observed(changes)
        codes = integers(changes.column("record_schema"))
        names = [source.qualified(schema.table_name) for schema in changes.record_schemas]
        mod_types, sequences = changes.column("mod_type"), changes.column("record_sequence")
        deleted = pc.equal(mod_types, _DELETED)
        mod_type = each(mod_types)
        keys, new_values, old_values = _mods(changes)
        times = np.repeat(at, counts)
        metadata = {
            "commit_timestamp": each(rfc3339_texts(at)),
            "snapshot": row.constant(value=False, kind=pa.bool_()),
            "project_id": row.constant(source.project),
            "instance_id": row.constant(source.instance),
            "database_id": row.constant(source.database),
            "change_stream_name": row.constant(source.change_stream),
            "schema": named([schema for schema, _ in names], codes),
            "database": row.constant(source.database),
            "table": named([table for _, table in names], codes),
            "server_transaction_id": each(changes.column("server_transaction_id")),
            "record_sequence": each(sequences),
            "mod_index": pa.array(row.mod_indexes),
            "transaction_tag": each(changes.column("transaction_tag")),
            "system_transaction": each(changes.column("is_system_transaction")),
            "number_of_records_in_transaction": each(changes.column("number_of_records_in_transaction")),
            "number_of_partitions_in_transaction": each(changes.column("number_of_partitions_in_transaction")),
            "is_last_record_in_transaction_in_partition": each(
                changes.column("is_last_record_in_transaction_in_partition")
            ),
            "value_capture_type": each(changes.column("value_capture_type")),
            "mod_type": mod_type,
            "change_type": mod_type,
            "primary_keys": named(
                [list(schema.primary_keys) for schema, _ in schemas], runs, SOURCE_METADATA.field("primary_keys").type
            ),
            "is_deleted": each(deleted),
        }
        columns = [
            row.constant(self._stream_name),
            row.constant(self._read_method),
            named([schema.table_name for schema in changes.record_schemas], codes),
            named([key for _, key in schemas], runs),
            self._uuids(changes, row),
            each(integers(changes.column("read_timestamp")) // 1000).cast(_TIMESTAMP),
            pa.array(times // 1000).cast(_TIMESTAMP),
            sort_keys(times, each(sequences), row.mod_indexes),
            change_sequence_numbers(times, np.repeat(sequence_numbers(sequences), counts), row.mod_indexes),
            pa.StructArray.from_arrays(list(metadata.values()), fields=list(SOURCE_METADATA)),
            splice(keys, _chosen(each(deleted), old_values, new_values)),
            _before(keys, old_values),
            row.constant(epoch, pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _uuids(self, changes: Changes, row: "_Rows") -> pa.Array:
        """Version 8 UUIDs, derived from the database, the change stream, the transaction, the record and the mod."""
        origin = self._origin
        names = pc.binary_join_element_wise(
            changes.column("server_transaction_id"), changes.column("record_sequence"), _SEPARATOR
        ).cast(pa.binary())
        high, low = version_8([blake2b(origin + name, digest_size=16).digest() for name in names.to_pylist()])
        lows = np.bitwise_xor(np.repeat(low, row.counts), row.mod_indexes.astype(np.uint64))
        return uuid_texts(np.repeat(high, row.counts), lows)


def version_8(digests: Sequence[bytes]) -> tuple[_Halves, _Halves]:
    """The high and the low 64 bits of version 8 UUIDs, made of digests of 16 bytes."""
    halves = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64).reshape(-1, 2)
    high = np.bitwise_or(np.bitwise_and(halves[:, 0], _NO_VERSION), _VERSION)
    low = np.bitwise_or(np.bitwise_and(halves[:, 1], _NO_VARIANT), _VARIANT)
    return high, low


class _Rows:
    """Repeats the values of records for their rows: a record has a row for each mod."""

    def __init__(self, counts: Int64s) -> None:
        self.counts = counts
        self._rows = int(counts.sum())
        self._single = bool((counts == 1).all())
        self._records = None if self._single else pa.array(np.repeat(np.arange(len(counts)), counts))

    @cached_property
    def mod_indexes(self) -> Int64s:
        """For each row, the index of the mod in its record."""
        firsts = np.cumsum(self.counts) - self.counts
        return np.arange(self._rows, dtype=np.int64) - np.repeat(firsts, self.counts)

    def repeated(self, values: pa.Array) -> pa.Array:
        """The record's value for each of its rows."""
        return values if self._records is None else values.take(self._records)

    def constant(self, value: object, kind: pa.DataType = _STRING) -> pa.Array:
        """The same value for every row."""
        return pa.repeat(pa.scalar(value, kind), self._rows)


def _mods(changes: Changes) -> tuple[pa.Array, pa.Array, pa.Array]:
    keys, new_values, old_values = map(objects, changes.column("mods").flatten().flatten())
    return keys, new_values, old_values


def _chosen(mask: pa.Array, if_true: pa.Array, if_false: pa.Array) -> pa.Array:
    count = mask.true_count
    if count == 0:
        return if_false
    return if_true if count == len(mask) else pc.if_else(mask, if_true, if_false)


def _before(keys: pa.Array, old_values: pa.Array) -> pa.Array:
    empty = is_empty(old_values)
    if empty.true_count == len(empty):
        return pa.nulls(len(empty), _STRING)
    return pc.if_else(empty, _NOTHING, splice(keys, old_values))


def sort_keys(times: Int64s, sequences: pa.Array, mod_indexes: Int64s) -> pa.ListArray:
    """The column ``sort_keys``: commit times in milliseconds and nanoseconds, record sequences, mod indexes."""
    rows = len(times)
    numbers = [pa.array(column).cast(_STRING) for column in (times // 1_000_000, times, mod_indexes)]
    flat = pa.concat_arrays([numbers[0], numbers[1], sequences, numbers[2]])
    interleaved = np.arange(4 * rows).reshape(4, rows).T.ravel()
    offsets = pa.array(np.arange(0, 4 * rows + 1, 4, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, flat.take(pa.array(interleaved)), type=SCHEMA.field("sort_keys").type)
