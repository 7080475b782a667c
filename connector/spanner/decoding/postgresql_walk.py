"""The row decoder of the PostgreSQL dialect. A row is a JSON document with one of three members.

Payloads are slices of the document. The classes here define the fields: one that is missing, NULL or of the wrong kind
is rejected unless its type allows it. Of a member that occurs twice the last one counts, as in PostgreSQL's jsonb.
Members that are not named here belong to a later version of the format, and are ignored.
"""

from functools import lru_cache
from typing import Annotated

import msgspec
from google.protobuf.struct_pb2 import Value

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
    HEARTBEAT_TIMESTAMP,
    NO_MEMBERS,
    STRING,
    UnknownRecordError,
    column_error,
    integer,
    payload,
    size,
    timestamp,
    type_of,
)

_Filled = Annotated[str, msgspec.Meta(min_length=1)]
_Integer = int | float | str
"""An INT64 is a JSON number, which jsonb may write with a fraction, or a string, as elsewhere in Spanner."""

# gc=False: these objects are many and never part of a cycle, so the garbage collector need not track them.


class PostgresqlHeartbeat(msgspec.Struct, gc=False):
    """A heartbeat record."""

    timestamp: str


class PostgresqlChild(msgspec.Struct, gc=False):
    """A child partition."""

    token: _Filled
    parent_partition_tokens: list[str | None] | None = None


class PostgresqlChildPartitions(msgspec.Struct, gc=False):
    """A child partitions record; in Spanner's documented example its sequence is a number."""

    start_timestamp: str
    child_partitions: Annotated[list[PostgresqlChild], msgspec.Meta(min_length=1)]
    record_sequence: int | str = ""


_EMPTY = msgspec.Raw(NO_MEMBERS.encode())


class PostgresqlMod(msgspec.Struct, gc=False):
    """A mod; a payload that is null or missing means ``{}``."""

    keys: msgspec.Raw = _EMPTY
    new_values: msgspec.Raw = _EMPTY
    old_values: msgspec.Raw = _EMPTY


class PostgresqlColumn(msgspec.Struct, gc=False):
    """A column type."""

    name: _Filled
    type: msgspec.Raw
    is_primary_key: bool
    ordinal_position: _Integer


class PostgresqlData(msgspec.Struct, gc=False):
    """A data change record; its payloads and column types are slices of the document."""

    commit_timestamp: str
    record_sequence: _Filled
    server_transaction_id: _Filled
    is_last_record_in_transaction_in_partition: bool
    table_name: _Filled
    column_types: msgspec.Raw
    mods: list[PostgresqlMod]
    mod_type: _Filled
    value_capture_type: _Filled
    number_of_records_in_transaction: _Integer
    number_of_partitions_in_transaction: _Integer
    transaction_tag: str = ""
    is_system_transaction: bool = False


class PostgresqlRecord(msgspec.Struct, gc=False):
    """A row's document: exactly one of the three is set."""

    data_change_record: PostgresqlData | None = None
    heartbeat_record: PostgresqlHeartbeat | None = None
    child_partitions_record: PostgresqlChildPartitions | None = None


POSTGRESQL_RECORDS = msgspec.json.Decoder(PostgresqlRecord)
_COLUMNS: msgspec.json.Decoder[list[PostgresqlColumn]] = msgspec.json.Decoder(list[PostgresqlColumn])


@lru_cache(CACHED_TYPES)  # they repeat from record to record
def postgresql_column_types(raw: bytes) -> tuple[ColumnType, ...]:
    """Reads a PostgreSQL record's ``column_types``, a JSON array.

    Raises:
        msgspec.DecodeError, UnknownRecordError: they are not of the documented format.
    """
    return tuple(map(_column_type, _COLUMNS.decode(raw)))


def _column_type(c: PostgresqlColumn) -> ColumnType:
    try:
        position = integer(c.ordinal_position, "ordinal_position")
        return column_type(c.name, type_of(bytes(c.type)), c.is_primary_key, position)
    except UnknownRecordError as error:
        raise column_error(c.name, error) from None


def postgresql_walk(value: Value, read_timestamp: int) -> list[Record]:
    """Returns a row's record: a :data:`~connector.spanner.decoding.decoder.Walk`."""
    if value.WhichOneof("kind") != STRING:
        raise UnknownRecordError("a row is not a JSON document")
    try:
        found = POSTGRESQL_RECORDS.decode(value.string_value)
        data, beat, children = found.data_change_record, found.heartbeat_record, found.child_partitions_record
        if (data is None) + (beat is None) + (children is None) < 2:
            raise UnknownRecordError("a row has more than one change record")
        if data is not None:
            return [_data(data, read_timestamp)]
        if beat is not None:
            return [HeartbeatRecord(timestamp(beat.timestamp, HEARTBEAT_TIMESTAMP))]
        if children is not None:
            return [_child_partitions(children)]
    except msgspec.MsgspecError as error:  # its message names the path and the kinds, and no value
        raise UnknownRecordError(f"a change record is not valid: {error}") from None
    except UnicodeDecodeError:
        raise UnknownRecordError("a change record is not UTF-8") from None
    raise UnknownRecordError("a change record is of an unknown kind")


def _data(row: PostgresqlData, read_timestamp: int) -> DataChangeRecord:
    mods = tuple(
        Mod(
            _payload(mod.keys, "keys"),
            _payload(mod.new_values, "new_values"),
            _payload(mod.old_values, "old_values"),
        )
        for mod in row.mods
    )
    return DataChangeRecord(
        commit_timestamp=timestamp(row.commit_timestamp, "commit_timestamp"),
        record_sequence=row.record_sequence,
        server_transaction_id=row.server_transaction_id,
        is_last_record_in_transaction_in_partition=row.is_last_record_in_transaction_in_partition,
        table_name=row.table_name,
        column_types=postgresql_column_types(bytes(row.column_types)),
        mods=mods,
        mod_type=row.mod_type,
        value_capture_type=row.value_capture_type,
        number_of_records_in_transaction=integer(
            row.number_of_records_in_transaction, "number_of_records_in_transaction"
        ),
        number_of_partitions_in_transaction=integer(
            row.number_of_partitions_in_transaction, "number_of_partitions_in_transaction"
        ),
        transaction_tag=row.transaction_tag,
        is_system_transaction=row.is_system_transaction,
        read_timestamp=read_timestamp,
        size=size(mods),
    )


def _payload(raw: msgspec.Raw, name: str) -> str:
    return payload(bytes(raw).decode(), name)


def _child_partitions(row: PostgresqlChildPartitions) -> ChildPartitionsRecord:
    return ChildPartitionsRecord(
        timestamp(row.start_timestamp, "start_timestamp"),
        str(row.record_sequence),
        tuple(
            ChildPartition(child.token, frozenset(parent for parent in child.parent_partition_tokens or () if parent))
            for child in row.child_partitions
        ),
    )
