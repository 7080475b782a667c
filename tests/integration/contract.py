"""Checks events against the contract, field by field and type by type; additional and missing fields fail."""

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from connector.core.timestamps import parse
from emulator import SampleDatabase, Table

Event = dict[str, Any]

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_NUMERIC = re.compile(r"-?\d+(\.\d+)?|NaN")
_FIELDS = (
    *("stream_name", "read_method", "object", "schema_key", "uuid", "read_timestamp", "source_timestamp"),
    *("sort_keys", "source_metadata", "payload"),
)
_METADATA: Mapping[str, type] = {
    "commit_timestamp": str,
    "snapshot": bool,
    "project_id": str,
    "instance_id": str,
    "database_id": str,
    "change_stream_name": str,
    "schema": str,
    "database": str,
    "table": str,
    "server_transaction_id": str,
    "record_sequence": str,
    "mod_index": int,
    "transaction_tag": str,
    "system_transaction": bool,
    "number_of_records_in_transaction": int,
    "number_of_partitions_in_transaction": int,
    "is_last_record_in_transaction_in_partition": bool,
    "value_capture_type": str,
    "mod_type": str,
    "change_type": str,
    "primary_keys": list,
    "is_deleted": bool,
    "scn": int,
    "rs_id": str,
    "ssn": int,
    "tx_id": str,
}


def _matches(pattern: str) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_base64(value: object) -> bool:
    return isinstance(value, str) and base64.b64encode(base64.b64decode(value, validate=True)).decode() == value


def _is_float(value: object) -> bool:
    return type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity")


UNIFIED: Mapping[str, Callable[[object], bool]] = {
    "BOOL": lambda value: type(value) is bool,
    "INT64": lambda value: type(value) is int and -(2**63) <= value < 2**63,
    "FLOAT32": _is_float,
    "FLOAT64": _is_float,
    "NUMERIC": _matches(_NUMERIC.pattern),
    "STRING": lambda value: type(value) is str,
    "BYTES": _is_base64,
    "DATE": _matches(r"\d{4}-\d\d-\d\d"),
    "TIMESTAMP": _matches(_TIMESTAMP.pattern),
    "JSON": lambda value: value is None or type(value) in (dict, list, str, int, float, bool),
}
"""Checks a value of a type, not NULL, in an event."""


def assert_valid(event: Event, sample: SampleDatabase, *, stream: str | None = None) -> None:
    """Fails unless the event of a sample database is as the contract says."""
    assert tuple(event) == _FIELDS
    name = stream or sample.change_stream
    assert event["stream_name"] == f"projects/{sample.project}/locations/global/streams/{name}"
    assert event["read_method"] == "spanner-cdc"
    assert re.fullmatch(r"[0-9a-f]{40}", event["schema_key"])
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", event["uuid"])
    for field in ("read_timestamp", "source_timestamp"):
        assert _TIMESTAMP.fullmatch(event[field]), field
    metadata = event["source_metadata"]
    _assert_valid_metadata(metadata, sample, name)
    commit = parse(metadata["commit_timestamp"])
    assert event["source_timestamp"] == metadata["commit_timestamp"]
    assert event["sort_keys"] == [
        *(commit // 1_000_000, commit, metadata["record_sequence"], metadata["mod_index"]),
    ]
    assert [type(part) for part in event["sort_keys"]] == [int, int, str, int]
    assert parse(event["read_timestamp"]) > commit - 10**9
    table = {table.name: table for table in sample.tables}[event["object"]]
    _assert_valid_table(metadata, table, sample)
    _assert_valid_payload(event["payload"], table)


def _assert_valid_metadata(metadata: Event, sample: SampleDatabase, stream: str) -> None:
    assert {field: type(value) for field, value in metadata.items()} == dict(_METADATA)
    assert tuple(metadata) == tuple(_METADATA)
    assert _TIMESTAMP.fullmatch(metadata["commit_timestamp"])
    assert metadata["snapshot"] is False
    assert metadata["project_id"] == sample.project
    assert metadata["instance_id"] == sample.instance
    assert metadata["database_id"] == metadata["database"] == sample.database_id
    assert metadata["change_stream_name"] == stream
    assert metadata["server_transaction_id"]
    assert metadata["record_sequence"].isdecimal()
    assert metadata["mod_index"] >= 0
    assert metadata["number_of_records_in_transaction"] >= 1
    assert metadata["number_of_partitions_in_transaction"] >= 1
    assert metadata["mod_type"] in ("INSERT", "UPDATE", "DELETE")
    assert metadata["change_type"] == metadata["mod_type"]
    assert metadata["is_deleted"] is (metadata["mod_type"] == "DELETE")
    assert metadata["scn"] == parse(metadata["commit_timestamp"])
    assert (metadata["rs_id"], metadata["ssn"]) == (metadata["record_sequence"], metadata["mod_index"])
    assert metadata["tx_id"] == metadata["server_transaction_id"]


def _assert_valid_table(metadata: Event, table: Table, sample: SampleDatabase) -> None:
    schema, dot, name = table.name.rpartition(".")
    unnamed = sample.database_id if sample.dialect == "googlesql" else "public"
    assert metadata["table"] == name
    assert metadata["schema"] == (schema if dot else unnamed)
    assert metadata["primary_keys"] == [column.name for column in table.key]


def _assert_valid_payload(payload: Event, table: Table) -> None:
    columns = {column.name: column for column in table.columns}
    assert set(payload) <= set(columns)
    assert {column.name for column in table.key} <= set(payload)
    for name, value in payload.items():
        column = columns[name]
        if value is None:
            assert column.nullable or column.type == "JSON", name
            continue
        valid = UNIFIED[column.type]
        if column.array:
            assert isinstance(value, list), name
            assert all(item is None or valid(item) for item in value), name
        else:
            assert valid(value), f"{table.name}.{name} is not a valid {column.type} in an event"


def assert_in_commit_order(events: list[Event]) -> None:
    """Fails unless events are in the order of their sort keys, each once, and transactions are complete.

    Transactions with the same commit timestamp follow one another; here they are ordered by their ids.
    """
    keys = [
        (event["sort_keys"][1], event["source_metadata"]["server_transaction_id"], int(sequence), index)
        for event in events
        for _, _, sequence, index in [event["sort_keys"]]
    ]
    assert keys == sorted(set(keys))
    assert len({event["uuid"] for event in events}) == len(events)
    records: dict[str, set[str]] = {}
    expected: dict[str, int] = {}
    for event in events:
        metadata = event["source_metadata"]
        transaction = metadata["server_transaction_id"]
        records.setdefault(transaction, set()).add(metadata["record_sequence"])
        expected[transaction] = metadata["number_of_records_in_transaction"]
    assert {transaction: len(found) for transaction, found in records.items()} == expected
