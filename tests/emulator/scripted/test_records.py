import base64
import json
import time
from dataclasses import replace

import pytest
from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import Value

from connector.core.dialects import DIALECTS
from connector.core.records import DataChangeRecord
from connector.core.timestamps import SECOND
from connector.spanner.decoding.decoder import walk
from emulator import Scenario
from emulator.scenario.history import (
    Change,
    Child,
    Children,
    Heartbeat,
    PartitionEnd,
    PartitionMode,
    PartitionStart,
    ReportedMod,
)
from emulator.scripted.change_records import row_encoder
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import COLUMNS, FORMS, MODS, ORIGIN, change, scenario

_ChangeStreamRecord = types.ChangeStreamRecord.pb()
_NAMES = {"googlesql": "GOOGLE_STANDARD_SQL", "postgresql": "POSTGRESQL"}


def _value(encoded: bytes) -> Value:
    return Value.FromString(encoded)


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_the_connector_decodes_every_field_of_every_change_as_the_history_has_it(
    dialect: Dialect, mode: PartitionMode
) -> None:
    script = Scenario.generate(11, origin=ORIGIN, seconds=30, dialect=dialect, mode=mode, transactions=80)
    form, decode = row_encoder(dialect, mode), walk(DIALECTS[_NAMES[dialect]], mode)
    for truth in [*script.history.changes(), change(1), change(2, 2)]:
        (got,) = decode(_value(form(truth)), 0)
        assert isinstance(got, DataChangeRecord)
        _assert_same(got, truth)


def _assert_same(got: DataChangeRecord, truth: Change) -> None:
    for name in (
        *("commit_timestamp", "record_sequence", "server_transaction_id", "mod_type", "value_capture_type"),
        *("is_last_record_in_transaction_in_partition", "transaction_tag", "is_system_transaction"),
        *("number_of_records_in_transaction", "number_of_partitions_in_transaction"),
    ):
        assert getattr(got, name) == getattr(truth, name), name
    assert got.table_name == truth.table
    assert [(c.name, c.is_primary_key, c.ordinal_position) for c in got.column_types] == [
        (c.name, c.is_primary_key, c.ordinal_position) for c in truth.columns
    ]
    for got_type, column in zip(got.column_types, truth.columns, strict=True):
        scalar = {"code": column.code} | ({"type_annotation": column.annotation} if column.annotation else {})
        expected = {"code": "ARRAY", "array_element_type": scalar} if column.array else scalar
        assert json.loads(got_type.type) == expected
    for got_mod, mod in zip(got.mods, truth.mods, strict=True):
        rows = (mod.keys, mod.new_values, mod.old_values)
        assert [json.loads(text) for text in (got_mod.keys, got_mod.new_values, got_mod.old_values)] == list(rows)


def test_a_googlesql_row_has_the_structure_of_the_official_emulators() -> None:
    row = _value(row_encoder("googlesql", "IMMUTABLE_KEY_RANGE")(change(1)))
    ((data, heartbeats, children),) = (struct.list_value.values for struct in row.list_value.values)
    (cells,) = (item.list_value.values for item in data.list_value.values)
    assert not heartbeats.list_value.values
    assert not children.list_value.values
    assert cells[0].string_value == "2026-09-21T14:13:21.123456789Z"
    assert cells[9].string_value == "1"
    assert cells[3].bool_value is True
    column = cells[5].list_value.values[2].list_value.values
    assert [column[0].string_value, column[1].string_value, column[3].string_value] == [
        *("Scores", '{"array_element_type":{"code":"FLOAT64"},"code":"ARRAY"}', "3"),
    ]
    mod = cells[6].list_value.values[1].list_value.values
    assert [cell.string_value for cell in mod] == [
        *('{"SingerId":"2"}', '{"FirstName":"","Price":"1.10","Scores":[]}', '{"FirstName":null}'),
    ]


def test_a_postgresql_row_is_one_json_document_with_offsets_and_numbers() -> None:
    form = row_encoder("postgresql", "IMMUTABLE_KEY_RANGE")
    document = json.loads(_value(form(change(1))).string_value)
    assert list(document) == ["data_change_record"]
    data = document["data_change_record"]
    assert data["commit_timestamp"] == "2026-09-21T14:13:21.123456789+00:00"
    assert data["number_of_records_in_transaction"] == 1
    assert data["column_types"][3] == {
        "is_primary_key": False,
        "name": "Price",
        "ordinal_position": 4,
        "type": {"code": "NUMERIC", "type_annotation": "PG_NUMERIC"},
    }
    heartbeat = json.loads(_value(form(Heartbeat(ORIGIN))).string_value)
    assert heartbeat == {"heartbeat_record": {"timestamp": "2026-09-21T14:13:20.123456789+00:00"}}
    children = json.loads(_value(form(Children(ORIGIN, "7", (Child("c", ("a", "b")),)))).string_value)
    assert children["child_partitions_record"]["child_partitions"] == [
        {"parent_partition_tokens": ["a", "b"], "token": "c"}
    ]


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_a_mutable_row_is_a_change_stream_record_in_base64(dialect: Dialect) -> None:
    form = row_encoder(dialect, "MUTABLE_KEY_RANGE")
    parsed = _ChangeStreamRecord.FromString(base64.b64decode(_value(form(change(1))).string_value))
    data = parsed.data_change_record
    assert (data.commit_timestamp.seconds, data.commit_timestamp.nanos) == divmod(ORIGIN + SECOND, SECOND)
    assert [column.name for column in data.column_metadata] == [column.name for column in COLUMNS]
    assert data.column_metadata[2].type_.array_element_type.code == types.TypeCode.FLOAT64
    assert data.column_metadata[3].type_.type_annotation == types.TypeAnnotationCode.PG_NUMERIC
    new_values = {data.column_metadata[v.column_metadata_index].name: v.value for v in data.mods[0].new_values}
    assert new_values["FirstName"].string_value == 'é"\\\n\U0001f600'
    assert [item.number_value for item in new_values["Scores"].list_value.values] == [1.5, -0.0]
    assert new_values["Price"].WhichOneof("kind") == "null_value"
    assert data.ModType.Name(data.mod_type) == "UPDATE"


def test_partition_records_of_the_mutable_mode_keep_their_fields() -> None:
    form = row_encoder("googlesql", "MUTABLE_KEY_RANGE")
    script = scenario(mode="MUTABLE_KEY_RANGE").history.partitions["left"].events
    event, start, _, end = (
        _ChangeStreamRecord.FromString(base64.b64decode(_value(form(record)).string_value)) for record in script[3:]
    )
    moved = event.partition_event_record
    assert [source.source_partition_token for source in moved.move_in_events] == ["right"]
    assert [found.destination_partition_token for found in moved.move_out_events] == ["right", "west"]
    assert start.partition_start_record.partition_tokens == ["west"]
    assert (end.partition_end_record.partition_token, end.partition_end_record.record_sequence) == ("left", "00000001")


def test_a_mode_rejects_the_records_of_the_other_mode() -> None:
    for dialect in ("googlesql", "postgresql"):
        with pytest.raises(ValueError, match="has no PartitionStart"):
            row_encoder(dialect, "IMMUTABLE_KEY_RANGE")(PartitionStart(ORIGIN, "1", ("a",)))
    with pytest.raises(ValueError, match="has no Children"):
        row_encoder("googlesql", "MUTABLE_KEY_RANGE")(Children(ORIGIN, "1", ()))


def test_a_number_that_is_not_valid_in_json_is_rejected() -> None:
    broken = ReportedMod({"SingerId": "1"}, {"Scores": [float("nan")]}, {})
    with pytest.raises(ValueError, match="JSON"):
        row_encoder("googlesql", "IMMUTABLE_KEY_RANGE")(replace(change(1), mods=(broken,)))


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_a_record_with_fifty_shared_mods_is_encoded_in_less_than_100_microseconds(
    dialect: Dialect, mode: PartitionMode
) -> None:
    form, shared = row_encoder(dialect, mode), replace(change(1), mods=MODS * 25)
    form(shared)

    def seconds() -> float:
        started_at = time.thread_time()
        for _ in range(200):
            form(shared)
        return time.thread_time() - started_at

    assert min(seconds() for _ in range(5)) / 200 < 100e-6


def test_the_end_of_a_partition_has_seconds_and_nanoseconds() -> None:
    row = _value(row_encoder("googlesql", "MUTABLE_KEY_RANGE")(PartitionEnd(ORIGIN, "1", "t")))
    end = _ChangeStreamRecord.FromString(base64.b64decode(row.string_value)).partition_end_record
    assert (end.end_timestamp.seconds * SECOND + end.end_timestamp.nanos) == ORIGIN
