"""The plain walk over a change stream's rows: one row's value to records, one walk a dialect and partition mode.

It takes whatever the service may send, in the order in which google.spanner.v1 defines it. :mod:`connector.decode`
takes it wherever a faster way cannot tell what it has before it, and that way must give the same records. Payloads are
handed on as they came: in GoogleSQL each mod's keys and values are JSON text, in the PostgreSQL dialect they are slices
of the row's one JSON document. In the MUTABLE_KEY_RANGE mode both dialects return the bytes of a protocol buffer, and
payloads are written out as JSON text. Column types repeat from record to record and are parsed once.
"""

from base64 import b64decode
from collections.abc import Callable, Hashable, Iterable
from math import inf, isfinite
from sys import getsizeof
from typing import TypeVar

import msgspec
import orjson
from google.cloud.spanner_v1 import types
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import ListValue, Value

from connector.dialects import MUTABLE, POSTGRESQL, Dialect
from connector.message_class import message_class
from connector.records import (
    ChildPartition,
    ChildPartitionsRecord,
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    Record,
    column_type,
)
from connector.schemas import canonical_type
from connector.timestamps import SECOND, parse

_Raw = TypeVar("_Raw", bound=Hashable)

Walk = Callable[[Value, int], list[Record]]
"""Takes a row's one value and the time it was received, nanoseconds since the epoch."""

_ChangeStreamRecord = types.ChangeStreamRecord.pb()
RawProtoRecord = message_class(
    "Record", {"Record": [("data_change_record", 1, "Data")], "Data": [("column_metadata", 6, bytes)]}
)
"""A ChangeStreamRecord whose column metadata stay bytes: those of the last record, mostly, and known by them."""

_NOT_FINITE = {inf: "Infinity", -inf: "-Infinity"}
_MOD_OVERHEAD = 150
_RECORD_OVERHEAD = 700
_CACHED_TYPES = 10_000


class UnknownRecordError(Exception):
    """A row has another form than the change stream page describes."""


def walk(dialect: Dialect, partition_mode: str) -> Walk:
    """The walk of a dialect and a partition mode; each call makes one with a cache of its own.

    Raises, when called:
        UnknownRecordError: the row has another form.
    """
    if partition_mode == MUTABLE:
        return _ProtoWalk()
    return _PostgresqlWalk() if dialect is POSTGRESQL else _GooglesqlWalk()


def _parents(tokens: list[str | None] | None) -> frozenset[str]:
    """Parents of initial partitions are ``[]``, NULL or ``[NULL]``."""
    return frozenset(token for token in tokens or () if token)


def _size(mods: tuple[Mod, ...]) -> int:
    text = sum(getsizeof(mod.keys) + getsizeof(mod.new_values) + getsizeof(mod.old_values) for mod in mods)
    return _RECORD_OVERHEAD + text + _MOD_OVERHEAD * len(mods)


class _GooglesqlWalk:
    """ARRAY<STRUCT<data_change_record, heartbeat_record, child_partitions_record>>, each an array of a struct."""

    def __init__(self) -> None:
        self._types: dict[bytes, tuple[ColumnType, ...]] = {}

    def __call__(self, value: Value, read_timestamp: int) -> list[Record]:
        records: list[Record] = []
        try:
            for change in value.list_value.values:
                data, heartbeats, children, *others = change.list_value.values
                if any(other.list_value.values for other in others):
                    raise UnknownRecordError("a change record is of a kind that this version does not know")
                records += [self._data(item.list_value, read_timestamp) for item in data.list_value.values]
                records += [
                    HeartbeatRecord(parse(item.list_value.values[0].string_value))
                    for item in heartbeats.list_value.values
                ]
                records += [_child_partitions(item.list_value) for item in children.list_value.values]
        except (IndexError, ValueError) as error:
            raise UnknownRecordError(f"a change record cannot be read: {type(error).__name__}") from error
        return records

    def _data(self, row: ListValue, read_timestamp: int) -> DataChangeRecord:
        v = row.values
        mods = tuple(
            Mod(*((cell.string_value or "{}") for cell in mod.list_value.values[:3])) for mod in v[6].list_value.values
        )
        return DataChangeRecord(
            commit_timestamp=parse(v[0].string_value),
            record_sequence=v[1].string_value,
            server_transaction_id=v[2].string_value,
            is_last_record_in_transaction_in_partition=v[3].bool_value,
            table_name=v[4].string_value,
            column_types=self._column_types(v[5]),
            mods=mods,
            mod_type=v[7].string_value,
            value_capture_type=v[8].string_value,
            number_of_records_in_transaction=int(v[9].string_value),
            number_of_partitions_in_transaction=int(v[10].string_value),
            transaction_tag=v[11].string_value,
            is_system_transaction=v[12].bool_value,
            read_timestamp=read_timestamp,
            size=_size(mods),
        )

    def _column_types(self, value: Value) -> tuple[ColumnType, ...]:
        raw = value.SerializeToString()
        known = self._types.get(raw)
        if known is None:
            known = googlesql_column_types(value.list_value)
            _remember(self._types, raw, known)
        return known


def googlesql_column_types(columns: ListValue) -> tuple[ColumnType, ...]:
    """A GoogleSQL record's ``column_types``.

    Raises:
        IndexError, ValueError: they are of another form.
    """
    return tuple(
        column_type(
            name=column.list_value.values[0].string_value,
            type=canonical_type(column.list_value.values[1].string_value),
            is_primary_key=column.list_value.values[2].bool_value,
            ordinal_position=int(column.list_value.values[3].string_value),
        )
        for column in columns.values
    )


def _child_partitions(row: ListValue) -> ChildPartitionsRecord:
    start, sequence, children = row.values[:3]
    return ChildPartitionsRecord(
        start_timestamp=parse(start.string_value),
        record_sequence=sequence.string_value,
        children=tuple(
            ChildPartition(
                child.list_value.values[0].string_value,
                _parents([token.string_value for token in child.list_value.values[1].list_value.values]),
            )
            for child in children.list_value.values
        ),
    )


# The garbage collector need not look at these: they are in no cycle, and there are many of them.


class _PgHeartbeat(msgspec.Struct, gc=False):
    timestamp: str


class _PgChild(msgspec.Struct, gc=False):
    token: str
    parent_partition_tokens: list[str | None] | None = None


class _PgChildPartitions(msgspec.Struct, gc=False):
    start_timestamp: str
    child_partitions: list[_PgChild]
    record_sequence: str = ""


_EMPTY = msgspec.Raw(b"{}")


class _PgMod(msgspec.Struct, gc=False):
    keys: msgspec.Raw = _EMPTY
    new_values: msgspec.Raw = _EMPTY
    old_values: msgspec.Raw = _EMPTY


class _PgColumn(msgspec.Struct, gc=False):
    name: str
    type: msgspec.Raw
    is_primary_key: bool
    ordinal_position: int


class PostgresqlData(msgspec.Struct, gc=False):
    """A data change record; its payloads and column types are slices of the document."""

    commit_timestamp: str
    record_sequence: str
    server_transaction_id: str
    is_last_record_in_transaction_in_partition: bool
    table_name: str
    column_types: msgspec.Raw
    mods: list[_PgMod]
    mod_type: str
    value_capture_type: str
    number_of_records_in_transaction: int
    number_of_partitions_in_transaction: int
    transaction_tag: str = ""
    is_system_transaction: bool = False


class PostgresqlRecord(msgspec.Struct, gc=False):
    """A row's document, which has one of these."""

    data_change_record: PostgresqlData | None = None
    heartbeat_record: _PgHeartbeat | None = None
    child_partitions_record: _PgChildPartitions | None = None


def postgresql_records() -> "msgspec.json.Decoder[PostgresqlRecord]":
    """Reads a row's document; a number may come as a JSON string, as INT64 does everywhere else in Spanner."""
    return msgspec.json.Decoder(PostgresqlRecord, strict=False)


_PG_COLUMNS: msgspec.json.Decoder[list[_PgColumn]] = msgspec.json.Decoder(list[_PgColumn], strict=False)


def postgresql_column_types(raw: bytes) -> tuple[ColumnType, ...]:
    """A PostgreSQL record's ``column_types``, a JSON array.

    Raises:
        msgspec.DecodeError, ValueError: they are of another form.
    """
    return tuple(
        column_type(c.name, canonical_type(bytes(c.type)), c.is_primary_key, c.ordinal_position)
        for c in _PG_COLUMNS.decode(raw)
    )


class _PostgresqlWalk:
    """A JSON document of one of three keys; payloads are its raw slices."""

    def __init__(self) -> None:
        self._record = postgresql_records()
        self._types: dict[bytes, tuple[ColumnType, ...]] = {}

    def __call__(self, value: Value, read_timestamp: int) -> list[Record]:
        try:
            found = self._record.decode(value.string_value)
            if found.data_change_record is not None:
                return [self._data(found.data_change_record, read_timestamp)]
            if found.heartbeat_record is not None:
                return [HeartbeatRecord(parse(found.heartbeat_record.timestamp))]
            if found.child_partitions_record is not None:
                at = found.child_partitions_record
                children = tuple(
                    ChildPartition(c.token, _parents(c.parent_partition_tokens)) for c in at.child_partitions
                )
                return [ChildPartitionsRecord(parse(at.start_timestamp), at.record_sequence, children)]
        except (msgspec.DecodeError, ValueError) as error:
            raise UnknownRecordError(f"a change record cannot be read: {type(error).__name__}") from error
        raise UnknownRecordError("a change record is of a kind that this version does not know")

    def _data(self, row: PostgresqlData, read_timestamp: int) -> DataChangeRecord:
        mods = tuple(Mod(_text(mod.keys), _text(mod.new_values), _text(mod.old_values)) for mod in row.mods)
        return DataChangeRecord(
            commit_timestamp=parse(row.commit_timestamp),
            record_sequence=row.record_sequence,
            server_transaction_id=row.server_transaction_id,
            is_last_record_in_transaction_in_partition=row.is_last_record_in_transaction_in_partition,
            table_name=row.table_name,
            column_types=self._column_types(bytes(row.column_types)),
            mods=mods,
            mod_type=row.mod_type,
            value_capture_type=row.value_capture_type,
            number_of_records_in_transaction=row.number_of_records_in_transaction,
            number_of_partitions_in_transaction=row.number_of_partitions_in_transaction,
            transaction_tag=row.transaction_tag,
            is_system_transaction=row.is_system_transaction,
            read_timestamp=read_timestamp,
            size=_size(mods),
        )

    def _column_types(self, raw: bytes) -> tuple[ColumnType, ...]:
        known = self._types.get(raw)
        if known is None:
            known = postgresql_column_types(raw)
            _remember(self._types, raw, known)
        return known


class _ProtoWalk:
    """The bytes of a google.spanner.v1.ChangeStreamRecord, in base64."""

    def __init__(self) -> None:
        self._types: dict[tuple[bytes, ...], tuple[ColumnType, ...]] = {}

    def __call__(self, value: Value, read_timestamp: int) -> list[Record]:
        try:
            raw = b64decode(value.string_value, validate=True)
            return [self._record(_ChangeStreamRecord.FromString(raw), raw, read_timestamp)]
        except (DecodeError, IndexError, TypeError, ValueError) as error:
            raise UnknownRecordError(f"a change record cannot be read: {type(error).__name__}") from error

    def _record(self, found: types.ChangeStreamRecord, raw: bytes, read_timestamp: int) -> Record:
        kind = found.WhichOneof("record")
        row = getattr(found, kind or "heartbeat_record")
        match kind:
            case "data_change_record":
                return self._data(row, raw, read_timestamp)
            case "heartbeat_record":
                return HeartbeatRecord(_nanoseconds(row, "timestamp"))
            case "partition_start_record":
                if not row.partition_tokens:
                    raise UnknownRecordError("a partition start record names no partition")
                return PartitionStartRecord(_nanoseconds(row, "start_timestamp"), tuple(row.partition_tokens))
            case "partition_end_record":
                return PartitionEndRecord(_nanoseconds(row, "end_timestamp"))
            case "partition_event_record":
                return PartitionEventRecord(_nanoseconds(row, "commit_timestamp"), len(row.move_in_events))
        raise UnknownRecordError("a change record is of a kind that this version does not know")

    def _data(
        self, row: types.ChangeStreamRecord.DataChangeRecord, raw: bytes, read_timestamp: int
    ) -> DataChangeRecord:
        columns = self._column_types(row.column_metadata, raw)
        mods = tuple(
            Mod(*(_object(columns, values) for values in (mod.keys, mod.new_values, mod.old_values)))
            for mod in row.mods
        )
        return DataChangeRecord(
            commit_timestamp=_nanoseconds(row, "commit_timestamp"),
            record_sequence=row.record_sequence,
            server_transaction_id=row.server_transaction_id,
            is_last_record_in_transaction_in_partition=row.is_last_record_in_transaction_in_partition,
            table_name=row.table,
            column_types=columns,
            mods=mods,
            mod_type=row.ModType.Name(row.mod_type),
            value_capture_type=row.ValueCaptureType.Name(row.value_capture_type),
            number_of_records_in_transaction=row.number_of_records_in_transaction,
            number_of_partitions_in_transaction=row.number_of_partitions_in_transaction,
            transaction_tag=row.transaction_tag,
            is_system_transaction=row.is_system_transaction,
            read_timestamp=read_timestamp,
            size=_size(mods),
        )

    def _column_types(
        self, metadata: Iterable[types.ChangeStreamRecord.DataChangeRecord.ColumnMetadata], record: bytes
    ) -> tuple[ColumnType, ...]:
        raw = tuple(RawProtoRecord.FromString(record).data_change_record.column_metadata)
        known = self._types.get(raw)
        if known is None:
            known = proto_column_types(metadata)
            _remember(self._types, raw, known)
        return known


def proto_column_types(
    metadata: Iterable[types.ChangeStreamRecord.DataChangeRecord.ColumnMetadata],
) -> tuple[ColumnType, ...]:
    """The ``column_metadata`` of a record of the MUTABLE_KEY_RANGE mode."""
    return tuple(column_type(c.name, _type(c.type_), c.is_primary_key, c.ordinal_position) for c in metadata)


def _type(found: types.Type) -> str:
    """Spanner's type object; a code that the library does not know stays a number."""
    return canonical_type(orjson.dumps(MessageToDict(found, preserving_proto_field_name=True)))


def _nanoseconds(row: Message, field: str) -> int:
    """A timestamp that must be there: one that is not would pass for 1970."""
    if not row.HasField(field):
        raise UnknownRecordError(f"a change record has no {field}")
    at = getattr(row, field)
    return int(at.seconds) * SECOND + int(at.nanos)


def _object(
    columns: tuple[ColumnType, ...], values: Iterable[types.ChangeStreamRecord.DataChangeRecord.ModValue]
) -> str:
    return orjson.dumps({columns[v.column_metadata_index].name: proto_value(v) for v in values}).decode()


def proto_value(of: types.ChangeStreamRecord.DataChangeRecord.ModValue) -> object:
    """What the value of a column is in JSON."""
    # Most values are strings, and what is no string has an empty one: so the kind need not be asked for.
    return of.value.string_value or _json(of.value)


def json_number(number: float) -> float | str:
    """A number as Spanner has it in JSON, which knows none that is not finite."""
    return number if isfinite(number) else _NOT_FINITE.get(number, "NaN")


def _json(value: Value) -> object:
    match value.WhichOneof("kind"):
        case "list_value":
            return [_json(item) for item in value.list_value.values]
        case None | "null_value":
            return None
        case "number_value":
            return json_number(value.number_value)
        case kind:
            return getattr(value, kind)


def _text(raw: msgspec.Raw) -> str:
    text = bytes(raw).decode()
    return "{}" if text == "null" else text


def _remember(cache: dict[_Raw, tuple[ColumnType, ...]], raw: _Raw, known: tuple[ColumnType, ...]) -> None:
    if len(cache) >= _CACHED_TYPES:
        cache.clear()
    cache[raw] = known
