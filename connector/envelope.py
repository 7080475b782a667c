"""The columns of an event in Datastream's envelope, and how records become them.

A spool's segments hold exactly these columns, and so does a Spark micro-batch: nothing is converted in between.
Payloads stay in Spanner's own JSON encoding, spliced as text; types are converted where events are written
(:mod:`connector.events`). The fields are those of the Datastream event page
(https://cloud.google.com/datastream/docs/events-and-streams) and of its Spanner source metadata.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa

from connector.records import DataChangeRecord, Mod, sequence_number
from connector.schemas import SchemaRegistry
from connector.timestamps import format_rfc3339

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


@dataclass(frozen=True, slots=True)
class Source:
    """A change stream of a database; ``default_schema`` is what the database's unnamed schema is called."""

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
        """The name of the stream where none is configured."""
        return f"projects/{self.project}/locations/global/streams/{self.change_stream}"


def spliced(keys: str, values: str) -> str:
    """The text of one JSON object with the members of both, each byte for byte as it was."""
    if values[1:-1].strip() == "":
        return keys
    if keys[1:-1].strip() == "":
        return values
    return f"{keys[:-1]},{values[1:]}"


def change_sequence_number(commit_timestamp: int, record_sequence: str, mod_index: int) -> str:
    """Three numbers of sixteen hex digits: sorted as text, they sort as the history of the database."""
    return f"{commit_timestamp:016X}/{sequence_number(record_sequence):016X}/{mod_index:016X}"


class EnvelopeBuilder:
    """Makes the envelope's columns of data change records.

    Args:
        source: where the records come from.
        stream_name: as configured, or None for the source's.
        read_method: ``spanner-cdc``, or as configured.
    """

    def __init__(self, source: Source, *, stream_name: str | None, read_method: str) -> None:
        self._source = source
        self._stream_name = stream_name or source.stream_name
        self._read_method = read_method

    def build(self, records: Iterable[DataChangeRecord], registry: SchemaRegistry, epoch: int) -> pa.RecordBatch:
        """One row a mod, in the order of the records, which are shown to ``registry``; columns are :data:`SCHEMA`."""
        held = list(records)
        rows = [index for index, record in enumerate(held) for _ in record.mods]
        mods = [(record, index, mod) for record in held for index, mod in enumerate(record.mods)]
        repeat = pa.array(rows, pa.int32())
        source = self._source

        def each(values: Iterable[object], kind: pa.DataType) -> pa.Array:
            return pa.array(values, kind).take(repeat)

        def constant(value: object, kind: pa.DataType) -> pa.Array:
            return pa.repeat(pa.scalar(value, kind), len(rows))

        known = [registry.observe(record) for record in held]
        names = [self._qualified(record.table_name) for record in held]
        mod_types = each([record.mod_type for record in held], _STRING)
        mod_indexes = pa.array([index for _, index, _ in mods], pa.int64())
        sequences = each([record.record_sequence for record in held], _STRING)
        metadata = {
            "commit_timestamp": each([format_rfc3339(record.commit_timestamp) for record in held], _STRING),
            "snapshot": constant(value=False, kind=pa.bool_()),
            "project_id": constant(source.project, _STRING),
            "instance_id": constant(source.instance, _STRING),
            "database_id": constant(source.database, _STRING),
            "change_stream_name": constant(source.change_stream, _STRING),
            "schema": each([schema for schema, _ in names], _STRING),
            "database": constant(source.database, _STRING),
            "table": each([table for _, table in names], _STRING),
            "server_transaction_id": each([record.server_transaction_id for record in held], _STRING),
            "record_sequence": sequences,
            "mod_index": mod_indexes,
            "transaction_tag": each([record.transaction_tag for record in held], _STRING),
            "system_transaction": each([record.is_system_transaction for record in held], pa.bool_()),
            "number_of_records_in_transaction": each(
                [record.number_of_records_in_transaction for record in held], pa.int64()
            ),
            "number_of_partitions_in_transaction": each(
                [record.number_of_partitions_in_transaction for record in held], pa.int64()
            ),
            "is_last_record_in_transaction_in_partition": each(
                [record.is_last_record_in_transaction_in_partition for record in held], pa.bool_()
            ),
            "value_capture_type": each([record.value_capture_type for record in held], _STRING),
            "mod_type": mod_types,
            "change_type": mod_types,
            "primary_keys": each(
                [list(schema.primary_keys) for schema, _ in known],
                SOURCE_METADATA.field("primary_keys").type,
            ),
            "is_deleted": each([record.mod_type == DELETE for record in held], pa.bool_()),
        }
        columns = [
            constant(self._stream_name, _STRING),
            constant(self._read_method, _STRING),
            each([record.table_name for record in held], _STRING),
            each([key for _, key in known], _STRING),
            pa.array(self._uuids(held), _STRING),
            each([record.read_timestamp // 1000 for record in held], _TIMESTAMP),
            each([record.commit_timestamp // 1000 for record in held], _TIMESTAMP),
            _sort_keys(mods),
            pa.array(
                [change_sequence_number(r.commit_timestamp, r.record_sequence, index) for r, index, _ in mods],
                _STRING,
            ),
            pa.StructArray.from_arrays(list(metadata.values()), fields=list(SOURCE_METADATA)),
            pa.array([_payload(record, mod) for record, _, mod in mods], _STRING),
            pa.array([_before(mod) for _, _, mod in mods], _STRING),
            constant(epoch, pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _qualified(self, table: str) -> tuple[str, str]:
        schema, dot, name = table.rpartition(".")
        return (schema, name) if dot else (self._source.default_schema, table)

    def _uuids(self, records: Iterable[DataChangeRecord]) -> list[str]:
        """Version 8 UUIDs of the database, the change stream, the transaction, the record and the mod."""
        origin = f"{self._source.database_name}\0{self._source.change_stream}"
        out = []
        for record in records:
            name = f"{origin}\0{record.server_transaction_id}\0{record.record_sequence}"
            digest = int.from_bytes(blake2b(name.encode(), digest_size=16).digest())
            base = digest & ~(0xF << 76) & ~(0x3 << 62) | 0x8 << 76 | 0x2 << 62
            for index in range(len(record.mods)):
                text = f"{base ^ index:032x}"
                out.append(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
        return out


def _sort_keys(mods: list[tuple[DataChangeRecord, int, Mod]]) -> pa.ListArray:
    flat: list[str] = []
    for record, index, _ in mods:
        at = record.commit_timestamp
        flat += (str(at // 1_000_000), str(at), record.record_sequence, str(index))
    offsets = pa.array(range(0, len(flat) + 1, 4), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(flat, _STRING), type=SCHEMA.field("sort_keys").type)


def _payload(record: DataChangeRecord, mod: Mod) -> str:
    return spliced(mod.keys, mod.old_values if record.mod_type == DELETE else mod.new_values)


def _before(mod: Mod) -> str | None:
    return None if mod.old_values[1:-1].strip() == "" else spliced(mod.keys, mod.old_values)
