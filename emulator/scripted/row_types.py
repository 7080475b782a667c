"""Names the read functions of change streams, and describes the type of the one column that each returns."""

from __future__ import annotations

from google.cloud.spanner_v1 import types

from emulator.scenario.history import PartitionMode
from emulator.workload.tables import Dialect

_ResultSetMetadata = types.ResultSetMetadata.pb()


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
        type_ = types.Type(code=types.TypeCode.PROTO, proto_type_fqn="google.spanner.v1.ChangeStreamRecord")
    elif dialect == "googlesql":
        type_ = _array(_change_record())
    elif mode == "MUTABLE_KEY_RANGE":
        type_ = types.Type(code=types.TypeCode.BYTES)
    else:
        type_ = types.Type(code=types.TypeCode.JSON, type_annotation=types.TypeAnnotationCode.PG_JSONB)
    name = "ChangeRecord" if dialect == "googlesql" else function
    described = types.ResultSetMetadata(
        row_type=types.StructType(fields=[types.StructType.Field(name=name, type_=type_)])
    )
    encoded: bytes = _ResultSetMetadata.SerializeToString(types.ResultSetMetadata.pb(described))
    return encoded


def _array(element: types.Type) -> types.Type:
    return types.Type(code=types.TypeCode.ARRAY, array_element_type=element)


def _struct(**fields: types.Type) -> types.Type:
    listed_fields = [types.StructType.Field(name=name, type_=type_) for name, type_ in fields.items()]
    return types.Type(code=types.TypeCode.STRUCT, struct_type=types.StructType(fields=listed_fields))


def _change_record() -> types.Type:
    timestamp, string, integer, boolean_, json_ = (
        types.Type(code=getattr(types.TypeCode, name)) for name in ("TIMESTAMP", "STRING", "INT64", "BOOL", "JSON")
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
