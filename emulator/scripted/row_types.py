"""Names the read functions of change streams, and describes the type of the one column that each returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.cloud.spanner_v1 import types

from emulator.scenario.history import PartitionMode, ReportedColumn
from emulator.scripted.wire import serialized
from emulator.workload.tables import Dialect

_ResultSetMetadata = types.ResultSetMetadata.pb()
_Type = types.Type.pb()


def read_function(dialect: Dialect, mode: PartitionMode, change_stream: str, placement: str | None = None) -> str:
    """Returns the name of the function that reads a change stream, or a placement of it."""
    if placement is not None:
        plain = read_function(dialect, mode, change_stream)
        return f"{plain}_{placement}" if dialect == "googlesql" else f"{plain}_{placement}".lower()
    if dialect == "googlesql":
        return f"READ_{change_stream}"
    return f"read_json_{change_stream}" if mode == "IMMUTABLE_KEY_RANGE" else f"read_proto_bytes_{change_stream}"


def metadata(dialect: Dialect, mode: PartitionMode, function: str) -> bytes:
    """Returns the google.spanner.v1.ResultSetMetadata of the rows of a read function, as bytes."""
    if dialect == "googlesql" and mode == "MUTABLE_KEY_RANGE":
        type_ = _Type(code="PROTO", proto_type_fqn="google.spanner.v1.ChangeStreamRecord")
    elif dialect == "googlesql":
        type_ = _array(_change_record())
    elif mode == "MUTABLE_KEY_RANGE":
        type_ = _Type(code="BYTES")
    else:
        type_ = _Type(code="JSON", type_annotation="PG_JSONB")
    return described([("ChangeRecord" if dialect == "googlesql" else function, type_)])


def described(columns: Iterable[tuple[str, Any]]) -> bytes:
    """Returns the google.spanner.v1.ResultSetMetadata of rows with columns of these names and types, as bytes."""
    message = _ResultSetMetadata()
    for name, type_ in columns:
        message.row_type.fields.add(name=name, type_=type_)
    return serialized(message)


def column_type(column: ReportedColumn) -> Any:
    """Returns the google.spanner.v1.Type of a table's column."""
    scalar = _Type(code=column.code, type_annotation=column.annotation or 0)
    return _array(scalar) if column.array else scalar


def _array(element: Any) -> Any:
    return _Type(code="ARRAY", array_element_type=element)


def _struct(**fields: Any) -> Any:
    named = [{"name": name, "type_": type_} for name, type_ in fields.items()]
    return _Type(code="STRUCT", struct_type={"fields": named})


def _change_record() -> Any:
    timestamp, string, integer, boolean_, json_ = (
        _Type(code=name) for name in ("TIMESTAMP", "STRING", "INT64", "BOOL", "JSON")
    )
    data = _struct(
        commit_timestamp=timestamp,
        record_sequence=string,
        server_transaction_id=string,
        is_last_record_in_transaction_in_partition=boolean_,
        table_name=string,
        column_types=_array(_struct(name=string, type=json_, is_primary_key=boolean_, ordinal_position=integer)),
        mods=_array(_struct(keys=json_, new_values=json_, old_values=json_)),
        mod_type=string,
        value_capture_type=string,
        number_of_records_in_transaction=integer,
        number_of_partitions_in_transaction=integer,
        transaction_tag=string,
        is_system_transaction=boolean_,
    )
    child = _struct(token=string, parent_partition_tokens=_array(string))
    return _struct(
        data_change_record=_array(data),
        heartbeat_record=_array(_struct(timestamp=timestamp)),
        child_partitions_record=_array(
            _struct(start_timestamp=timestamp, record_sequence=string, child_partitions=_array(child))
        ),
    )
