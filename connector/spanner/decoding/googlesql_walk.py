"""The row decoder of the GoogleSQL dialect.

A row is an ARRAY<STRUCT<data_change_record, heartbeat_record, child_partitions_record>>, and each of the three is an
array of structs. A mod's keys and values are JSON texts, and are not changed.
"""

from functools import lru_cache

from google.protobuf.struct_pb2 import ListValue, Value

from connector.core.records import (
    ChildPartition,
    ChildPartitionsRecord,
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    Record,
    column_type,
)
from connector.spanner.decoding.row_fields import (
    CACHED_TYPES,
    CHANGE,
    CHILD_PARTITION,
    CHILD_PARTITIONS,
    COLUMN_TYPE,
    DATA_CHANGE,
    HEARTBEAT,
    HEARTBEAT_TIMESTAMP,
    MOD,
    NO_MEMBERS,
    NULL,
    STRING,
    Struct,
    UnknownRecordError,
    integer,
    items,
    payload,
    size,
    timestamp,
    type_error,
    type_of,
)

_CHANGE = Struct("a change record", CHANGE)
_DATA_CHANGE = Struct("a data change record", DATA_CHANGE)
_COLUMN_TYPE = Struct("a column type", COLUMN_TYPE)
_MOD = Struct("a mod", MOD)
_HEARTBEAT = Struct("a heartbeat record", HEARTBEAT)
_CHILD_PARTITIONS = Struct("a child partitions record", CHILD_PARTITIONS)
_CHILD_PARTITION = Struct("a child partition", CHILD_PARTITION)
_PAYLOADS = tuple(field.name for field in MOD)


def googlesql_walk(value: Value, read_timestamp: int) -> list[Record]:
    """Returns the records of a row: a :data:`~connector.spanner.decoding.decoder.Walk`."""
    records: list[Record] = []
    for change in items(value, "a row"):
        data, heartbeats, children, *others = _CHANGE.values(change)
        if any(other.WhichOneof("kind") != NULL and items(other, "a new record") for other in others):
            raise UnknownRecordError("a change record is of an unknown kind")
        records += [_data(item, read_timestamp) for item in data.list_value.values if not _is_null(item)]
        records += [_heartbeat(item) for item in heartbeats.list_value.values if not _is_null(item)]
        records += [_child_partitions(item) for item in children.list_value.values if not _is_null(item)]
    if not records:
        raise UnknownRecordError("a row has no change record")
    return records


def _data(row: Value, read_timestamp: int) -> DataChangeRecord:
    v = _DATA_CHANGE.values(row)
    mods = tuple(_mod(mod) for mod in v[6].list_value.values)
    return DataChangeRecord(
        commit_timestamp=timestamp(v[0].string_value, "commit_timestamp"),
        record_sequence=v[1].string_value,
        server_transaction_id=v[2].string_value,
        is_last_record_in_transaction_in_partition=v[3].bool_value,
        table_name=v[4].string_value,
        column_types=googlesql_column_types(v[5].list_value.SerializeToString()),
        mods=mods,
        mod_type=v[7].string_value,
        value_capture_type=v[8].string_value,
        number_of_records_in_transaction=integer(v[9].string_value, "number_of_records_in_transaction"),
        number_of_partitions_in_transaction=integer(v[10].string_value, "number_of_partitions_in_transaction"),
        transaction_tag=v[11].string_value,
        is_system_transaction=v[12].bool_value,
        read_timestamp=read_timestamp,
        size=size(mods),
    )


@lru_cache(CACHED_TYPES)  # they repeat from record to record
def googlesql_column_types(columns: bytes) -> tuple[ColumnType, ...]:
    """Reads a GoogleSQL record's ``column_types``, the bytes of a google.protobuf.ListValue.

    Raises:
        DecodeError, UnknownRecordError: they are not of the documented format.
    """
    return tuple(map(_column_type, ListValue.FromString(columns).values))


def _column_type(column: Value) -> ColumnType:
    try:
        v = _COLUMN_TYPE.values(column)
        return column_type(
            name=v[0].string_value,
            type=type_of(v[1].string_value),
            is_primary_key=v[2].bool_value,
            ordinal_position=integer(v[3].string_value, "ordinal_position"),
        )
    except UnknownRecordError as error:
        raise type_error(column, error) from None


def _is_null(record: Value) -> bool:
    """True if a record is a struct of NULLs, which means no record. Apache Beam's reader expects these too."""
    fields = record.list_value.values
    return len(fields) > 0 and all(field.WhichOneof("kind") == NULL for field in fields)


def _mod(mod: Value) -> Mod:
    texts = [value.string_value for value in _MOD.values(mod)[:3]]
    for number, text in enumerate(texts):
        if text[:2] != '{"' or text[-1:] != "}":
            null = not text and mod.list_value.values[number].WhichOneof("kind") == NULL
            texts[number] = NO_MEMBERS if null else payload(text, _PAYLOADS[number])
    return Mod(*texts)


def _heartbeat(row: Value) -> HeartbeatRecord:
    return HeartbeatRecord(timestamp(_HEARTBEAT.values(row)[0].string_value, HEARTBEAT_TIMESTAMP))


def _child_partitions(row: Value) -> ChildPartitionsRecord:
    start, sequence, children = _CHILD_PARTITIONS.values(row)[:3]
    return ChildPartitionsRecord(
        start_timestamp=timestamp(start.string_value, "start_timestamp"),
        record_sequence=sequence.string_value,
        children=tuple(_child(child) for child in children.list_value.values),
    )


def _child(of: Value) -> ChildPartition:
    token, parents = _CHILD_PARTITION.values(of)[:2]
    if any(parent.WhichOneof("kind") not in (STRING, NULL) for parent in parents.list_value.values):
        raise UnknownRecordError("a child partition: one of parent_partition_tokens is not a string")
    return ChildPartition(
        token.string_value, frozenset(p.string_value for p in parents.list_value.values if p.string_value)
    )
