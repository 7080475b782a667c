"""Change stream rows of both dialects to the same records."""

from typing import Any

import orjson
import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from connector.decode import UnknownRecordError, decoder
from connector.dialects import GOOGLESQL, IMMUTABLE, POSTGRESQL
from connector.records import (
    ChildPartition,
    ChildPartitionsRecord,
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    Record,
)
from connector.timestamps import parse

AT = "2026-01-02T03:04:05.123456789Z"
TYPES: list[Any] = [
    ["Id", '{"code":"INT64"}', True, "1"],
    ["A", '{"code":"ARRAY","array_element_type":{"code":"JSON"}}', False, "2"],
]
MODS = [['{"Id":"1"}', '{"A":null}', "{}"], ['{"Id":"2"}', '{"A":[]}', '{"A":["1"]}']]


def googlesql(data: Any = (), heartbeat: Any = (), children: Any = ()) -> Value:
    return ParseDict([[list(data), list(heartbeat), list(children)]], Value())


def data_change(**changed: Any) -> list[Any]:
    fields = {
        "commit_timestamp": AT, "record_sequence": "00000001", "server_transaction_id": "tx", "last": True,
        "table": "T", "types": TYPES, "mods": MODS, "mod_type": "UPDATE", "capture": "NEW_ROW",
        "records": "2", "partitions": "1", "tag": "app=x", "system": False,
    }  # fmt: skip
    return list({**fields, **changed}.values())


def postgresql(**document: Any) -> Value:
    return Value(string_value=orjson.dumps(document).decode())


def one(records: list[Record]) -> Record:
    (record,) = records
    return record


def as_googlesql(mods: list[list[str]] = MODS) -> DataChangeRecord:
    record = one(decoder(GOOGLESQL, IMMUTABLE)(googlesql(data=[data_change(mods=mods)]), 7))
    assert isinstance(record, DataChangeRecord)
    return record


def as_postgresql() -> DataChangeRecord:
    document = {
        "commit_timestamp": "2026-01-02T03:04:05.123456789+00:00",
        "record_sequence": "00000001",
        "server_transaction_id": "tx",
        "is_last_record_in_transaction_in_partition": True,
        "table_name": "T",
        "column_types": [
            {"name": name, "type": orjson.Fragment(kind), "is_primary_key": key, "ordinal_position": int(position)}
            for name, kind, key, position in TYPES
        ],
        "mods": [
            {"keys": orjson.Fragment(k), "new_values": orjson.Fragment(n), "old_values": orjson.Fragment(o)}
            for k, n, o in MODS
        ],
        "mod_type": "UPDATE",
        "value_capture_type": "NEW_ROW",
        "number_of_records_in_transaction": 2,
        "number_of_partitions_in_transaction": 1,
        "transaction_tag": "app=x",
        "is_system_transaction": False,
    }
    record = one(decoder(POSTGRESQL, IMMUTABLE)(postgresql(data_change_record=document), 7))
    assert isinstance(record, DataChangeRecord)
    return record


@pytest.mark.parametrize("record", [as_googlesql(), as_postgresql()], ids=["googlesql", "postgresql"])
def test_a_data_change_record_has_every_field_in_both_dialects(record: DataChangeRecord) -> None:
    assert record.commit_timestamp == parse(AT)
    assert record.record_sequence == "00000001"
    assert record.server_transaction_id == "tx"
    assert record.is_last_record_in_transaction_in_partition
    assert record.table_name == "T"
    assert record.column_types == (
        ColumnType("Id", '{"code":"INT64"}', True, 1),
        ColumnType("A", '{"array_element_type":{"code":"JSON"},"code":"ARRAY"}', False, 2),
    )
    assert record.mods == (Mod('{"Id":"1"}', '{"A":null}', "{}"), Mod('{"Id":"2"}', '{"A":[]}', '{"A":["1"]}'))
    assert record.mod_type == "UPDATE"
    assert record.value_capture_type == "NEW_ROW"
    assert record.number_of_records_in_transaction == 2
    assert record.number_of_partitions_in_transaction == 1
    assert record.transaction_tag == "app=x"
    assert record.is_system_transaction is False
    assert record.read_timestamp == 7
    assert record.size > 0


def test_payloads_are_the_bytes_that_spanner_sent() -> None:
    odd = '{"F": 1.50e0,  "S":"\\u0041"}'
    assert as_googlesql([['{"Id":"1"}', odd, "{}"]]).mods[0].new_values == odd
    text = (
        '{"data_change_record":{"commit_timestamp":"2026-01-02T03:04:05Z","record_sequence":"0",'
        '"server_transaction_id":"t","is_last_record_in_transaction_in_partition":true,"table_name":"T",'
        '"column_types":[],"mods":[{"keys":{"Id":"1"},"new_values":' + odd + ',"old_values":{}}],"mod_type":"INSERT",'
        '"value_capture_type":"NEW_ROW","number_of_records_in_transaction":"1",'
        '"number_of_partitions_in_transaction":"1","transaction_tag":"","is_system_transaction":false}}'
    )
    record = one(decoder(POSTGRESQL, IMMUTABLE)(Value(string_value=text), 0))
    assert isinstance(record, DataChangeRecord)
    assert record.mods[0].new_values == odd


def test_column_types_that_repeat_are_one_object() -> None:
    decode = decoder(GOOGLESQL, IMMUTABLE)
    first, second = (one(decode(googlesql(data=[data_change()]), 0)) for _ in range(2))
    assert isinstance(first, DataChangeRecord)
    assert isinstance(second, DataChangeRecord)
    assert first.column_types is second.column_types


def test_heartbeats_are_read_in_both_dialects() -> None:
    assert decoder(GOOGLESQL, IMMUTABLE)(googlesql(heartbeat=[[AT]]), 0) == [HeartbeatRecord(parse(AT))]
    assert decoder(POSTGRESQL, IMMUTABLE)(postgresql(heartbeat_record={"timestamp": AT}), 0) == [
        HeartbeatRecord(parse(AT))
    ]


@pytest.mark.parametrize("parents", [[], None, [None], ["p", "q"]])
def test_child_partitions_have_no_parents_where_they_are_empty_or_null(parents: list[str | None] | None) -> None:
    expected = frozenset(parent for parent in parents or [] if parent)
    wanted = [ChildPartitionsRecord(parse(AT), "00000001", (ChildPartition("c", expected),))]
    assert decoder(GOOGLESQL, IMMUTABLE)(googlesql(children=[[AT, "00000001", [["c", parents]]]]), 0) == wanted
    document = {
        "start_timestamp": AT,
        "record_sequence": "00000001",
        "child_partitions": [{"token": "c", "parent_partition_tokens": parents}],
    }
    assert decoder(POSTGRESQL, IMMUTABLE)(postgresql(child_partitions_record=document), 0) == wanted


@pytest.mark.parametrize("row", [[[[["x"]], [], []]], [["y"]], [[[], [], [], [["new"]]]]])
def test_a_googlesql_row_of_another_form_is_refused_not_skipped(row: Any) -> None:
    with pytest.raises(UnknownRecordError):
        decoder(GOOGLESQL, IMMUTABLE)(ParseDict(row, Value()), 0)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"data_change_record":{}}', '{"heartbeat_record":{"timestamp":"x"}}', '{"new_record":{}}']
)
def test_a_postgresql_row_of_another_form_is_refused_not_skipped(text: str) -> None:
    with pytest.raises(UnknownRecordError):
        decoder(POSTGRESQL, IMMUTABLE)(Value(string_value=text), 0)
