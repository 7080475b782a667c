"""The row decoders read the rows of both dialects and modes as the same records."""

from base64 import b64encode
from typing import Any

import orjson
import pytest
from google.cloud.spanner_v1 import types
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from connector.core.dialects import GOOGLESQL, IMMUTABLE, MUTABLE, POSTGRESQL
from connector.core.records import (
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
)
from connector.core.timestamps import parse
from connector.spanner.decoding.decoder import walk
from connector.spanner.decoding.row_fields import UnknownRecordError

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
    record = one(walk(GOOGLESQL, IMMUTABLE)(googlesql(data=[data_change(mods=mods)]), 7))
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
    record = one(walk(POSTGRESQL, IMMUTABLE)(postgresql(data_change_record=document), 7))
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
    record = one(walk(POSTGRESQL, IMMUTABLE)(Value(string_value=text), 0))
    assert isinstance(record, DataChangeRecord)
    assert record.mods[0].new_values == odd


def test_column_types_that_repeat_are_one_object() -> None:
    decode = walk(GOOGLESQL, IMMUTABLE)
    first, second = (one(decode(googlesql(data=[data_change()]), 0)) for _ in range(2))
    assert isinstance(first, DataChangeRecord)
    assert isinstance(second, DataChangeRecord)
    assert first.column_types is second.column_types


def test_heartbeats_are_read_in_both_dialects() -> None:
    assert walk(GOOGLESQL, IMMUTABLE)(googlesql(heartbeat=[[AT]]), 0) == [HeartbeatRecord(parse(AT))]
    assert walk(POSTGRESQL, IMMUTABLE)(postgresql(heartbeat_record={"timestamp": AT}), 0) == [
        HeartbeatRecord(parse(AT))
    ]


@pytest.mark.parametrize("parents", [[], None, [None], ["p", "q"]])
def test_child_partitions_have_no_parents_if_these_are_empty_or_null(parents: list[str | None] | None) -> None:
    expected = frozenset(parent for parent in parents or [] if parent)
    wanted = [ChildPartitionsRecord(parse(AT), "00000001", (ChildPartition("c", expected),))]
    assert walk(GOOGLESQL, IMMUTABLE)(googlesql(children=[[AT, "00000001", [["c", parents]]]]), 0) == wanted
    document = {
        "start_timestamp": AT,
        "record_sequence": "00000001",
        "child_partitions": [{"token": "c", "parent_partition_tokens": parents}],
    }
    assert walk(POSTGRESQL, IMMUTABLE)(postgresql(child_partitions_record=document), 0) == wanted


@pytest.mark.parametrize("row", [[[[["x"]], [], []]], [["y"]], [[[], [], [], [["new"]]]]])
def test_a_googlesql_row_that_is_not_valid_is_rejected_not_skipped(row: Any) -> None:
    with pytest.raises(UnknownRecordError):
        walk(GOOGLESQL, IMMUTABLE)(ParseDict(row, Value()), 0)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"data_change_record":{}}', '{"heartbeat_record":{"timestamp":"x"}}', '{"new_record":{}}']
)
def test_a_postgresql_row_that_is_not_valid_is_rejected_not_skipped(text: str) -> None:
    with pytest.raises(UnknownRecordError):
        walk(POSTGRESQL, IMMUTABLE)(Value(string_value=text), 0)


ChangeStreamRecord = types.ChangeStreamRecord
DataChange = ChangeStreamRecord.DataChangeRecord
COMMIT = {"seconds": parse(AT) // 10**9, "nanos": 123456789}


def of_proto(record: Any) -> Value:
    return Value(string_value=b64encode(ChangeStreamRecord.serialize(record)).decode())


def mutable(record: Any) -> Record:
    decoded = {one(walk(dialect, MUTABLE)(of_proto(record), 7)) for dialect in (GOOGLESQL, POSTGRESQL)}
    return one(list(decoded))


def proto_type(code: str, **more: Any) -> Any:
    return types.Type(code=getattr(types.TypeCode, code), **more)


def test_a_data_change_record_of_the_mutable_mode_has_every_field_and_payloads_in_spanners_encoding() -> None:
    array = proto_type("ARRAY", array_element_type=proto_type("NUMERIC", type_annotation=2))
    columns = [
        DataChange.ColumnMetadata(name="Id", type_=proto_type("INT64"), is_primary_key=True, ordinal_position=1),
        DataChange.ColumnMetadata(name="A", type_=array, ordinal_position=2),
        DataChange.ColumnMetadata(name="F", type_=proto_type("FLOAT64"), ordinal_position=3),
    ]
    mod = DataChange.Mod(
        keys=[DataChange.ModValue(column_metadata_index=0, value=Value(string_value="1"))],
        new_values=[
            DataChange.ModValue(column_metadata_index=1, value=ParseDict(["1", None], Value())),
            DataChange.ModValue(column_metadata_index=2, value=Value(number_value=-0.5)),
        ],
        old_values=[DataChange.ModValue(column_metadata_index=1, value=ParseDict(None, Value()))],
    )
    found = mutable(
        ChangeStreamRecord(
            data_change_record=DataChange(
                commit_timestamp=COMMIT,
                record_sequence="00000001",
                server_transaction_id="tx",
                is_last_record_in_transaction_in_partition=True,
                table="T",
                column_metadata=columns,
                mods=[mod],
                mod_type=DataChange.ModType.UPDATE,
                value_capture_type=DataChange.ValueCaptureType.NEW_ROW_AND_OLD_VALUES,
                number_of_records_in_transaction=2,
                number_of_partitions_in_transaction=1,
                transaction_tag="app=x",
                is_system_transaction=True,
            )
        )
    )
    assert isinstance(found, DataChangeRecord)
    assert found == DataChangeRecord(
        commit_timestamp=parse(AT),
        record_sequence="00000001",
        server_transaction_id="tx",
        is_last_record_in_transaction_in_partition=True,
        table_name="T",
        column_types=(
            ColumnType("Id", '{"code":"INT64"}', True, 1),
            ColumnType(
                "A", '{"array_element_type":{"code":"NUMERIC","type_annotation":"PG_NUMERIC"},"code":"ARRAY"}', False, 2
            ),
            ColumnType("F", '{"code":"FLOAT64"}', False, 3),
        ),
        mods=(Mod('{"Id":"1"}', '{"A":["1",null],"F":-0.5}', '{"A":null}'),),
        mod_type="UPDATE",
        value_capture_type="NEW_ROW_AND_OLD_VALUES",
        number_of_records_in_transaction=2,
        number_of_partitions_in_transaction=1,
        transaction_tag="app=x",
        is_system_transaction=True,
        read_timestamp=7,
        size=found.size,
    )


def test_the_other_records_of_the_mutable_mode_are_read() -> None:
    started = ChangeStreamRecord.PartitionStartRecord(start_timestamp=COMMIT, partition_tokens=["a", "b"])
    moved = ChangeStreamRecord.PartitionEventRecord(
        commit_timestamp=COMMIT,
        move_in_events=[{"source_partition_token": "b"}],
        move_out_events=[{"destination_partition_token": "c"}, {"destination_partition_token": "d"}],
    )
    ended = ChangeStreamRecord.PartitionEndRecord(end_timestamp=COMMIT, partition_token="a")
    beat = ChangeStreamRecord.HeartbeatRecord(timestamp=COMMIT)
    assert mutable(ChangeStreamRecord(partition_start_record=started)) == PartitionStartRecord(parse(AT), ("a", "b"))
    assert mutable(ChangeStreamRecord(partition_event_record=moved)) == PartitionEventRecord(parse(AT), 1)
    assert mutable(ChangeStreamRecord(partition_end_record=ended)) == PartitionEndRecord(parse(AT))
    assert mutable(ChangeStreamRecord(heartbeat_record=beat)) == HeartbeatRecord(parse(AT))


def test_a_type_that_the_library_does_not_know_is_kept_as_its_number() -> None:
    column = DataChange.ColumnMetadata(name="N")
    DataChange.ColumnMetadata.pb(column).type_.code = 99
    record = DataChange(
        commit_timestamp=COMMIT, record_sequence="0", server_transaction_id="tx", table="T", column_metadata=[column],
        mod_type=10, value_capture_type=10,
    )  # fmt: skip
    found = mutable(ChangeStreamRecord(data_change_record=record))
    assert isinstance(found, DataChangeRecord)
    assert found.column_types == (ColumnType("N", '{"code":99}', False, 0),)


@pytest.mark.parametrize(
    "record",
    [
        ChangeStreamRecord(heartbeat_record={}),
        ChangeStreamRecord(data_change_record={"mod_type": 10, "value_capture_type": 10}),
        ChangeStreamRecord(partition_start_record={"partition_tokens": ["a"]}),
        ChangeStreamRecord(partition_start_record={"start_timestamp": COMMIT}),
        ChangeStreamRecord(partition_end_record={"partition_token": "a"}),
        ChangeStreamRecord(partition_event_record={"partition_token": "a"}),
    ],
)
def test_a_record_without_a_timestamp_or_tokens_is_rejected(record: Any) -> None:
    with pytest.raises(UnknownRecordError):
        walk(GOOGLESQL, MUTABLE)(of_proto(record), 0)


@pytest.mark.parametrize("text", ["", "?", "!!!!", b64encode(b"\x0a\x02\x12").decode()])
def test_a_row_of_the_mutable_mode_that_is_not_valid_is_rejected_not_skipped(text: str) -> None:
    with pytest.raises(UnknownRecordError):
        walk(GOOGLESQL, MUTABLE)(Value(string_value=text), 0)
