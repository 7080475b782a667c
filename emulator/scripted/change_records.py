"""Encodes records as the rows that Spanner returns, in both dialects and both partition modes.

A row has one column, and so is one google.protobuf.Value, encoded here as bytes. Columns and mods that records share
are encoded once. The formats are those of https://cloud.google.com/spanner/docs/change-streams/details and, where that
page says nothing, of the official emulator. The connector's decoder is not used here, because tests compare it with
this.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Protocol

from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import ListValue, Value
from google.protobuf.timestamp_pb2 import Timestamp

from connector.core.timestamps import SECOND, format_rfc3339
from emulator.scenario.history import (
    Change,
    Children,
    Heartbeat,
    PartitionEnd,
    PartitionEvent,
    PartitionMode,
    PartitionStart,
    Record,
    ReportedColumn,
    ReportedMod,
)
from emulator.scripted.wire import boolean, field, listed, number_field, text
from emulator.workload.tables import Dialect
from emulator.workload.values import Value as JsonValue

_ChangeStreamRecord = types.ChangeStreamRecord.pb()
_Data = types.ChangeStreamRecord.DataChangeRecord.pb()
_Mod = types.ChangeStreamRecord.DataChangeRecord.Mod.pb()
_ColumnMetadata = types.ChangeStreamRecord.DataChangeRecord.ColumnMetadata.pb()
_Type = types.Type.pb()
_CACHED_BYTES = 64 * 1024 * 1024


class RowEncoder(Protocol):
    """Encodes a record as a row."""

    def __call__(self, record: Record) -> bytes:
        """Returns the row's one Value as bytes.

        Raises:
            ValueError: the partition mode has no such record.
        """
        ...


def row_encoder(dialect: Dialect, mode: PartitionMode) -> RowEncoder:
    """Returns the encoder of a dialect and a partition mode; each has its own cache, and is for one thread."""
    if mode == "MUTABLE_KEY_RANGE":
        return _ProtoEncoder()
    return _GooglesqlEncoder() if dialect == "googlesql" else _PostgresqlEncoder()


class _Cache:
    """Caches encoded bytes by the identity of the objects that they encode, up to _CACHED_BYTES.

    It keeps references to these objects, so that no other object can have the same identity.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[bytes, tuple[object, ...]]] = {}
        self._bytes = 0

    def get(self, make: Callable[[], bytes], *parts: object) -> bytes:
        """Returns what `make` returned for these objects; calls it if they are not in the cache."""
        key = tuple(map(id, parts))
        found = self._known.get(key)
        if found is not None:
            return found[0]
        made = make()
        self._bytes += len(made)
        if self._bytes > _CACHED_BYTES:
            self._known.clear()
            self._bytes = len(made)
        self._known[key] = made, parts
        return made


class _GooglesqlEncoder:
    """ARRAY<STRUCT<data_change_record, heartbeat_record, child_partitions_record>>, each an array of a struct."""

    def __init__(self) -> None:
        self._cache = _Cache()
        self._empty = listed(())

    def __call__(self, record: Record) -> bytes:
        kinds = [self._empty, self._empty, self._empty]
        if isinstance(record, Change):
            kinds[0] = listed((self._change(record),))
        elif isinstance(record, Heartbeat):
            kinds[1] = listed((listed((_zulu(record.timestamp),)),))
        elif isinstance(record, Children):
            kinds[2] = listed((_googlesql_children(record),))
        else:
            raise _unknown(record)
        return listed((listed(kinds),))

    def _change(self, change: Change) -> bytes:
        return listed(
            (
                _zulu(change.commit_timestamp),
                text(change.record_sequence),
                text(change.server_transaction_id),
                boolean(change.is_last_record_in_transaction_in_partition),
                text(change.table),
                self._cache.get(lambda: listed(map(_googlesql_column, change.columns)), change.columns),
                self._cache.get(lambda: listed(map(_googlesql_mod, change.mods)), change.mods),
                text(change.mod_type),
                text(change.value_capture_type),
                text(str(change.number_of_records_in_transaction)),
                text(str(change.number_of_partitions_in_transaction)),
                text(change.transaction_tag),
                boolean(change.is_system_transaction),
            )
        )


def _googlesql_column(column: ReportedColumn) -> bytes:
    return listed(
        (
            text(column.name),
            text(_json(_type_object(column))),
            boolean(column.is_primary_key),
            text(str(column.ordinal_position)),
        )
    )


def _googlesql_mod(mod: ReportedMod) -> bytes:
    return listed((text(_json(mod.keys or None)), text(_json(mod.new_values)), text(_json(mod.old_values))))


def _googlesql_children(record: Children) -> bytes:
    children = (listed((text(child.token), listed(map(text, child.parents)))) for child in record.children)
    return listed((_zulu(record.timestamp), text(record.record_sequence), listed(children)))


class _PostgresqlEncoder:
    """A JSON document with one of three keys, as text."""

    def __init__(self) -> None:
        self._cache = _Cache()

    def __call__(self, record: Record) -> bytes:
        if isinstance(record, Change):
            return self._change(record)
        if isinstance(record, Heartbeat):
            return text(_json({"heartbeat_record": {"timestamp": _offset(record.timestamp)}}))
        if isinstance(record, Children):
            children = [{"parent_partition_tokens": child.parents, "token": child.token} for child in record.children]
            content = {
                "child_partitions": children,
                "record_sequence": record.record_sequence,
                "start_timestamp": _offset(record.timestamp),
            }
            return text(_json({"child_partitions_record": content}))
        raise _unknown(record)

    def _change(self, change: Change) -> bytes:
        columns = self._cache.get(lambda: _json([*map(_column_object, change.columns)]).encode(), change.columns)
        mods = self._cache.get(lambda: _json([*map(_mod_object, change.mods)]).encode(), change.mods)
        before = {
            "commit_timestamp": _offset(change.commit_timestamp),
            "is_last_record_in_transaction_in_partition": change.is_last_record_in_transaction_in_partition,
            "is_system_transaction": change.is_system_transaction,
            "mod_type": change.mod_type,
        }
        after = {
            "number_of_partitions_in_transaction": change.number_of_partitions_in_transaction,
            "number_of_records_in_transaction": change.number_of_records_in_transaction,
            "record_sequence": change.record_sequence,
            "server_transaction_id": change.server_transaction_id,
            "table_name": change.table,
            "transaction_tag": change.transaction_tag,
            "value_capture_type": change.value_capture_type,
        }
        parts = (
            *(b'{"data_change_record":{"column_types":', columns, b",", _json(before)[1:-1].encode()),
            *(b',"mods":', mods, b",", _json(after)[1:-1].encode(), b"}}"),
        )
        return field(3, b"".join(parts))


def _column_object(column: ReportedColumn) -> dict[str, object]:
    return {
        "is_primary_key": column.is_primary_key,
        "name": column.name,
        "ordinal_position": column.ordinal_position,
        "type": _type_object(column),
    }


def _mod_object(mod: ReportedMod) -> dict[str, object]:
    return {"keys": mod.keys or None, "new_values": mod.new_values, "old_values": mod.old_values}


class _ProtoEncoder:
    """The bytes of a google.spanner.v1.ChangeStreamRecord, in base64; the same in both dialects."""

    def __init__(self) -> None:
        self._cache = _Cache()

    def __call__(self, record: Record) -> bytes:
        content = field(1, self._change(record)) if isinstance(record, Change) else _partition_record(record)
        return field(3, base64.b64encode(content))

    def _change(self, change: Change) -> bytes:
        columns, mods = change.columns, change.mods
        parts = (
            field(1, _timestamp(change.commit_timestamp).SerializeToString()),
            field(2, change.record_sequence.encode()),
            field(3, change.server_transaction_id.encode()),
            number_field(4, change.is_last_record_in_transaction_in_partition),
            field(5, change.table.encode()),
            self._cache.get(lambda: b"".join(field(6, _proto_column(column)) for column in columns), columns),
            self._cache.get(lambda: _proto_mods(columns, mods), columns, mods),
            number_field(8, _Data.ModType.Value(change.mod_type)),
            number_field(9, _Data.ValueCaptureType.Value(change.value_capture_type)),
            number_field(10, change.number_of_records_in_transaction),
            number_field(11, change.number_of_partitions_in_transaction),
            field(12, change.transaction_tag.encode()),
            number_field(13, change.is_system_transaction),
        )
        return b"".join(parts)


def _partition_record(record: Record) -> bytes:
    """Serialize any record but a data change record as a ChangeStreamRecord."""
    message = _ChangeStreamRecord()
    at = _timestamp(record.timestamp)
    match record:
        case Heartbeat():
            message.heartbeat_record.timestamp.CopyFrom(at)
        case PartitionStart():
            message.partition_start_record.start_timestamp.CopyFrom(at)
            message.partition_start_record.record_sequence = record.record_sequence
            message.partition_start_record.partition_tokens.extend(record.tokens)
        case PartitionEnd():
            message.partition_end_record.end_timestamp.CopyFrom(at)
            message.partition_end_record.record_sequence = record.record_sequence
            message.partition_end_record.partition_token = record.token
        case PartitionEvent():
            event = message.partition_event_record
            event.commit_timestamp.CopyFrom(at)
            event.record_sequence = record.record_sequence
            event.partition_token = record.token
            for source in record.sources:
                event.move_in_events.add(source_partition_token=source)
            for destination in record.destinations:
                event.move_out_events.add(destination_partition_token=destination)
        case _:
            raise _unknown(record)
    encoded: bytes = message.SerializeToString()
    return encoded


def _proto_column(column: ReportedColumn) -> bytes:
    scalar = _Type(code=column.code, type_annotation=column.annotation or 0)
    message = _ColumnMetadata(
        name=column.name, is_primary_key=column.is_primary_key, ordinal_position=column.ordinal_position
    )
    message.type_.CopyFrom(_Type(code="ARRAY", array_element_type=scalar) if column.array else scalar)
    encoded: bytes = message.SerializeToString()
    return encoded


def _proto_mods(columns: tuple[ReportedColumn, ...], mods: tuple[ReportedMod, ...]) -> bytes:
    indexes = {column.name: index for index, column in enumerate(columns)}
    out = []
    for mod in mods:
        message = _Mod()
        for into, row in (
            (message.keys, mod.keys),
            (message.new_values, mod.new_values),
            (message.old_values, mod.old_values),
        ):
            for name, value in row.items():
                into.add(column_metadata_index=indexes[name], value=_value(value))
        out.append(field(7, message.SerializeToString()))
    return b"".join(out)


def _value(content: JsonValue) -> Value:
    if content is None:
        return Value(null_value=0)
    if isinstance(content, bool):
        return Value(bool_value=content)
    if isinstance(content, str):
        return Value(string_value=content)
    if isinstance(content, list):
        return Value(list_value=ListValue(values=[_value(item) for item in content]))
    return Value(number_value=content)


def _timestamp(at: int) -> Timestamp:
    return Timestamp(seconds=at // SECOND, nanos=at % SECOND)


def _zulu(at: int) -> bytes:
    return text(format_rfc3339(at))


def _offset(at: int) -> str:
    return format_rfc3339(at).removesuffix("Z") + "+00:00"


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)


def _type_object(column: ReportedColumn) -> dict[str, object]:
    scalar: dict[str, object] = {"code": column.code}
    if column.annotation:
        scalar["type_annotation"] = column.annotation
    return {"array_element_type": scalar, "code": "ARRAY"} if column.array else scalar


def _unknown(record: Record) -> ValueError:
    return ValueError(f"this partition mode has no {type(record).__name__} record")
