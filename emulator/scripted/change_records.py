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
from functools import partial

from google.cloud.spanner_v1 import types
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
from emulator.scripted.row_types import column_type
from emulator.scripted.wire import boolean, encoded, field, listed, number_field, serialized, text
from emulator.workload.journal import Row
from emulator.workload.tables import Dialect

_ChangeStreamRecord = types.ChangeStreamRecord.pb()
_Data = types.ChangeStreamRecord.DataChangeRecord.pb()
_ColumnMetadata = types.ChangeStreamRecord.DataChangeRecord.ColumnMetadata.pb()
_CACHED_BYTES = 64 * 1024 * 1024
_EMPTY = listed(())


RowEncoder = Callable[[Record], bytes]
"""Encodes a record as the bytes of a row's one Value; raises ValueError for a record that the mode does not have."""


def row_encoder(dialect: Dialect, mode: PartitionMode) -> RowEncoder:
    """Returns the encoder of a dialect and a partition mode; each has its own cache, and is for one thread."""
    if mode == "MUTABLE_KEY_RANGE":
        return partial(_proto_row, _Cache())
    return partial(_googlesql_row if dialect == "googlesql" else _postgresql_row, _Cache())


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


def _googlesql_row(cache: _Cache, record: Record) -> bytes:
    """Encodes ARRAY<STRUCT<data_change_record, heartbeat_record, child_partitions_record>>, all arrays of a struct."""
    kinds = [_EMPTY, _EMPTY, _EMPTY]
    if isinstance(record, Change):
        kinds[0] = listed((_googlesql_change(cache, record),))
    elif isinstance(record, Heartbeat):
        kinds[1] = listed((listed((_zulu(record.timestamp),)),))
    elif isinstance(record, Children):
        kinds[2] = listed((_googlesql_children(record),))
    else:
        raise _unknown(record)
    return listed((listed(kinds),))


def _googlesql_change(cache: _Cache, change: Change) -> bytes:
    return listed(
        (
            _zulu(change.commit_timestamp),
            text(change.record_sequence),
            text(change.server_transaction_id),
            boolean(change.is_last_record_in_transaction_in_partition),
            text(change.table),
            cache.get(lambda: listed(map(_googlesql_column, change.columns)), change.columns),
            cache.get(lambda: listed(map(_googlesql_mod, change.mods)), change.mods),
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


def _postgresql_row(cache: _Cache, record: Record) -> bytes:
    """Encodes a JSON document with one of three keys, as text."""
    if isinstance(record, Change):
        return _postgresql_change(cache, record)
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


def _postgresql_change(cache: _Cache, change: Change) -> bytes:
    columns = cache.get(lambda: _json([*map(_column_object, change.columns)]).encode(), change.columns)
    mods = cache.get(lambda: _json([*map(_mod_object, change.mods)]).encode(), change.mods)
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


def _proto_row(cache: _Cache, record: Record) -> bytes:
    """Encodes the bytes of a google.spanner.v1.ChangeStreamRecord, in base64; the same in both dialects."""
    content = field(1, _proto_change(cache, record)) if isinstance(record, Change) else _partition_record(record)
    return field(3, base64.b64encode(content))


def _proto_change(cache: _Cache, change: Change) -> bytes:
    columns, mods = change.columns, change.mods
    parts = (
        field(1, serialized(_timestamp(change.commit_timestamp))),
        field(2, change.record_sequence.encode()),
        field(3, change.server_transaction_id.encode()),
        number_field(4, change.is_last_record_in_transaction_in_partition),
        field(5, change.table.encode()),
        cache.get(lambda: b"".join(field(6, _proto_column(column)) for column in columns), columns),
        cache.get(lambda: _proto_mods(columns, mods), columns, mods),
        number_field(8, _Data.ModType.Value(change.mod_type)),
        number_field(9, _Data.ValueCaptureType.Value(change.value_capture_type)),
        number_field(10, change.number_of_records_in_transaction),
        number_field(11, change.number_of_partitions_in_transaction),
        field(12, change.transaction_tag.encode()),
        number_field(13, change.is_system_transaction),
    )
    return b"".join(parts)


def _partition_record(record: Record) -> bytes:
    """Serializes any record but a data change record as a ChangeStreamRecord."""
    at = _timestamp(record.timestamp)
    match record:
        case Heartbeat():
            message = _ChangeStreamRecord(heartbeat_record={"timestamp": at})
        case PartitionStart(_, sequence, tokens):
            start = {"start_timestamp": at, "record_sequence": sequence, "partition_tokens": tokens}
            message = _ChangeStreamRecord(partition_start_record=start)
        case PartitionEnd(_, sequence, token):
            end = {"end_timestamp": at, "record_sequence": sequence, "partition_token": token}
            message = _ChangeStreamRecord(partition_end_record=end)
        case PartitionEvent(_, sequence, token):
            event = {
                "commit_timestamp": at,
                "record_sequence": sequence,
                "partition_token": token,
                "move_in_events": [{"source_partition_token": source} for source in record.sources],
                "move_out_events": [{"destination_partition_token": other} for other in record.destinations],
            }
            message = _ChangeStreamRecord(partition_event_record=event)
        case _:
            raise _unknown(record)
    return serialized(message)


def _proto_column(column: ReportedColumn) -> bytes:
    metadata = _ColumnMetadata(
        name=column.name, is_primary_key=column.is_primary_key, ordinal_position=column.ordinal_position
    )
    metadata.type_.CopyFrom(column_type(column))
    return serialized(metadata)


def _proto_mods(columns: tuple[ReportedColumn, ...], mods: tuple[ReportedMod, ...]) -> bytes:
    indexes = {column.name: index for index, column in enumerate(columns)}

    def values(number: int, row: Row) -> bytes:
        pairs = (number_field(1, indexes[name]) + field(2, encoded(value)) for name, value in row.items())
        return b"".join(field(number, pair) for pair in pairs)

    return b"".join(
        field(7, values(1, mod.keys) + values(2, mod.old_values) + values(3, mod.new_values)) for mod in mods
    )


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
