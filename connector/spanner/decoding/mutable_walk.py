"""The row decoder of the MUTABLE_KEY_RANGE mode. A row is the base64 of a google.spanner.v1.ChangeStreamRecord.

Both dialects use it. Payloads are written as JSON texts. In protocol buffers a missing field has its default value;
where a record cannot have that value, such as an empty table name or mod type, the row is rejected. Unknown fields
belong to a later version of the format, and are ignored. A record of an unknown kind is rejected.
"""

from base64 import b64decode
from collections.abc import Iterable
from functools import lru_cache, partial

import orjson
from google.cloud.spanner_v1 import types
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Value

from connector.core.message_classes import message_classes
from connector.core.records import (
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
from connector.core.timestamps import SECOND
from connector.core.value_texts import json_number
from connector.spanner.decoding.row_fields import (
    CACHED_TYPES,
    STRING,
    UnknownRecordError,
    column_error,
    in_64_bits,
    size,
    type_of,
)

_ChangeStreamRecord = types.ChangeStreamRecord.pb()
_Data = types.ChangeStreamRecord.DataChangeRecord
RawProtoRecord = message_classes(
    {"Record": {"data_change_record": (1, "Data")}, "Data": {"column_metadata": (6, "repeated bytes")}}
)["Record"]
"""A ChangeStreamRecord whose column metadata stay bytes: they rarely change, and are the key of a cache."""

_KINDS = {
    "data_change_record": 1,
    "heartbeat_record": 2,
    "partition_start_record": 3,
    "partition_end_record": 4,
    "partition_event_record": 5,
}
_Kinds = message_classes({"Record": {name: (number, "repeated bytes") for name, number in _KINDS.items()}})["Record"]
"""A ChangeStreamRecord with every record of each kind; the library's class keeps only the last one."""

_MOD_TYPES = {number: name for name, number in _Data.pb().ModType.items() if number}
_CAPTURES = {number: name for name, number in _Data.pb().ValueCaptureType.items() if number}
"""Names by number. 0 is left out: it means UNSPECIFIED, or a missing field."""


def mutable_walk(value: Value, read_timestamp: int) -> list[Record]:
    """Returns a row's record: a :data:`~connector.spanner.decoding.decoder.Walk`."""
    if value.WhichOneof("kind") != STRING:
        raise UnknownRecordError("a row is not the bytes of a change record")
    try:
        raw = b64decode(value.string_value, validate=True)
        _check_is_one(raw)
        return [_record(_ChangeStreamRecord.FromString(raw), raw, read_timestamp)]
    except UnknownRecordError:
        raise
    except (DecodeError, TypeError, ValueError) as error:
        raise UnknownRecordError(f"a change record cannot be read: {type(error).__name__}") from None


def _record(found: types.ChangeStreamRecord, raw: bytes, read_timestamp: int) -> Record:
    kind = found.WhichOneof("record")
    row = getattr(found, kind or "heartbeat_record")
    match kind:
        case "data_change_record":
            return _data(row, raw, read_timestamp)
        case "heartbeat_record":
            return HeartbeatRecord(_nanoseconds(row, "timestamp"))
        case "partition_start_record":
            if not row.partition_tokens or "" in row.partition_tokens:
                raise UnknownRecordError("a partition start record names no partition")
            return PartitionStartRecord(_nanoseconds(row, "start_timestamp"), tuple(row.partition_tokens))
        case "partition_end_record":
            return PartitionEndRecord(_nanoseconds(row, "end_timestamp"))
        case "partition_event_record":
            return PartitionEventRecord(_nanoseconds(row, "commit_timestamp"), len(row.move_in_events))
    raise UnknownRecordError("a change record is of an unknown kind")


def _data(row: _Data, raw: bytes, read_timestamp: int) -> DataChangeRecord:
    for name in ("record_sequence", "server_transaction_id", "table"):
        if not getattr(row, name):
            raise UnknownRecordError(f"a data change record has no {name}")
    columns = proto_column_types(tuple(RawProtoRecord.FromString(raw).data_change_record.column_metadata))
    mods = tuple(
        Mod(*(_object(columns, values) for values in (mod.keys, mod.new_values, mod.old_values))) for mod in row.mods
    )
    return DataChangeRecord(
        commit_timestamp=_nanoseconds(row, "commit_timestamp"),
        record_sequence=row.record_sequence,
        server_transaction_id=row.server_transaction_id,
        is_last_record_in_transaction_in_partition=row.is_last_record_in_transaction_in_partition,
        table_name=row.table,
        column_types=columns,
        mods=mods,
        mod_type=mod_type(row.mod_type),
        value_capture_type=value_capture_type(row.value_capture_type),
        number_of_records_in_transaction=row.number_of_records_in_transaction,
        number_of_partitions_in_transaction=row.number_of_partitions_in_transaction,
        transaction_tag=row.transaction_tag,
        is_system_transaction=row.is_system_transaction,
        read_timestamp=read_timestamp,
        size=size(mods),
    )


def _check_is_one(raw: bytes) -> None:
    kinds = _Kinds.FromString(raw)
    if sum(len(getattr(kinds, name)) for name in _KINDS) > 1:
        raise UnknownRecordError("a row has more than one change record")


def _named(field: str, names: dict[int, str], number: int) -> str:
    if number not in names:
        raise UnknownRecordError(f"a data change record: {field} is unknown")
    return names[number]


mod_type = partial(_named, "mod_type", _MOD_TYPES)
value_capture_type = partial(_named, "value_capture_type", _CAPTURES)
"""The name of a mod type or a value capture type by its number; an UnknownRecordError if there is none."""


@lru_cache(CACHED_TYPES)  # they repeat from record to record
def proto_column_types(metadata: tuple[bytes, ...]) -> tuple[ColumnType, ...]:
    """Reads the ``column_metadata`` of a record of the MUTABLE_KEY_RANGE mode, each as its bytes.

    Raises:
        DecodeError, UnknownRecordError: they cannot be parsed, or a column has no name or no type.
    """
    record = RawProtoRecord(data_change_record={"column_metadata": metadata}).SerializeToString()
    return tuple(map(_column_type, _ChangeStreamRecord.FromString(record).data_change_record.column_metadata))


def _column_type(c: _Data.ColumnMetadata) -> ColumnType:
    try:
        return column_type(_name(c), type_json(c.type_), c.is_primary_key, c.ordinal_position)
    except UnknownRecordError as error:
        raise column_error(c.name, error) from None


def _name(column: _Data.ColumnMetadata) -> str:
    if not column.name:
        raise UnknownRecordError("a column has no name")
    return str(column.name)


def type_json(found: types.Type) -> str:
    """Returns Spanner's type as JSON; a code that the library does not know stays a number."""
    return type_of(orjson.dumps(MessageToDict(found, preserving_proto_field_name=True)))


def _nanoseconds(row: Message, field: str) -> int:
    """Returns a timestamp that must be set: a missing one would be read as 1970."""
    if not row.HasField(field):
        raise UnknownRecordError(f"a change record has no {field}")
    return nanoseconds(getattr(row, field))


def nanoseconds(at: Message) -> int:
    """Converts a google.protobuf.Timestamp to Unix nanoseconds.

    Raises:
        UnknownRecordError: they do not fit in 64 bits, or seconds are missing, which would be read as 1970.
    """
    if at.seconds == 0 or not 0 <= at.nanos < SECOND:
        raise UnknownRecordError("a timestamp has no seconds, or too many nanoseconds")
    return in_64_bits(int(at.seconds) * SECOND + int(at.nanos), "a timestamp")


def _object(columns: tuple[ColumnType, ...], values: Iterable[_Data.ModValue]) -> str:
    found: dict[str, object] = {}
    for value in values:
        index = value.column_metadata_index
        if not 0 <= index < len(columns):
            raise UnknownRecordError("a mod: column_metadata_index is out of range")
        name = columns[index].name
        if name in found:
            raise column_error(name, UnknownRecordError("a mod: a column has two values"))
        try:
            found[name] = proto_value(value)
        except UnknownRecordError as error:
            raise column_error(name, error) from None
    return orjson.dumps(found).decode()


def proto_value(of: _Data.ModValue) -> object:
    """Converts a column's value to JSON.

    Raises:
        UnknownRecordError: it is missing, or of a kind that no column has.
    """
    # Most values are strings. The string of every other kind is empty, so the kind is looked up only then.
    return of.value.string_value or json_value(of.value)


def json_value(value: Value) -> object:
    """Converts a value to what JSON is made of.

    Raises:
        UnknownRecordError: it is missing, or of a kind that no column has.
    """
    match value.WhichOneof("kind"):
        case "list_value":
            return [json_value(item) for item in value.list_value.values]
        case "null_value":
            return None
        case "number_value":
            return json_number(value.number_value)
        case ("bool_value" | "string_value") as kind:
            return getattr(value, kind)
    raise UnknownRecordError("a mod: a value is of an unknown kind")  # missing is not NULL
