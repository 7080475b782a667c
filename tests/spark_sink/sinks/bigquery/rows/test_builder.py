"""Events as rows of BigQuery: the values of each type, and the metadata of each mode."""

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from benchmarks import rows
from benchmarks.rows import message_class
from connector.core.records import ColumnType
from spark_sink.sinks.bigquery.rows.builder import RowBuilder
from spark_sink.sinks.bigquery.tables.table import Mode
from tests.connector.builders import AT, column
from tests.spark_sink.sinks.bigquery.rows.built import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT64,
    JSON,
    JSONB,
    MODES,
    NOW,
    NUMERIC,
    PG_NUMERIC,
    STRING,
    TIMESTAMP,
    WIDE,
    array_of,
    builder_of,
    change,
    decoded,
    enveloped,
    of_column,
)


@pytest.mark.parametrize(
    ("type_json", "values"),
    [
        (BOOL, {"true": True, "false": False}),
        (INT64, {'"0"': 0, '"-1"': -1, '"127"': 127, '"128"': 128, f'"{2**63 - 1}"': 2**63 - 1, "7": 7}),
        (INT64, {f'"{-(2**63)}"': -(2**63), '"-129"': -129}),
        ('{"code":"ENUM","proto_type_fqn":"a.C"}', {'"3"': 3}),
        (FLOAT64, {"0": 0.0, "1.5": 1.5, "5e-324": 5e-324, '"Infinity"': math.inf, '"-Infinity"': -math.inf}),
        (FLOAT32, {"3.140000104904175": 3.140000104904175, "1e-45": 1.401298464324817e-45}),
        (NUMERIC, {'"0"': "0", '"-1.10"': "-1.10", f'"{"9" * 29}.999999999"': f"{'9' * 29}.999999999"}),
        (PG_NUMERIC, {'"NaN"': "NaN", '"1.10"': "1.10", f'"{"9" * 200}.5"': f"{'9' * 200}.5"}),
        (STRING, {'""': "", '"null"': "null", '"a\\"\\n\\ud83d\\ude00"': 'a"\n😀'}),
        ('{"code":"UUID"}', {'"00000000-0000-4000-8000-000000000000"': "00000000-0000-4000-8000-000000000000"}),
        ('{"code":"INTERVAL"}', {'"P1Y2M3DT4H5M6.5S"': "P1Y2M3DT4H5M6.5S"}),
        (BYTES, {'""': b"", '"AAEC"': b"\x00\x01\x02"}),
        ('{"code":"PROTO","proto_type_fqn":"a.B"}', {'"CgA="': b"\x0a\x00"}),
        (DATE, {'"0001-01-01"': -719162, '"1969-12-31"': -1, '"1970-01-01"': 0, '"9999-12-31"': 2932896}),
        (TIMESTAMP, {'"1970-01-01T00:00:00.000001Z"': 1, '"1969-12-31T23:59:59.9999999Z"': -1}),
        (TIMESTAMP, {'"0001-01-01T00:00:00Z"': -62135596800000000, '"2026-01-02T03:04:05+01:30"': 1767317645000000}),
        (JSON, {'"null"': "null", '"{\\"a\\":[1.10]}"': '{"a":[1.10]}'}),
        (JSONB, {'"{\\"a\\": 12345678901234567890123}"': '{"a": 12345678901234567890123}'}),
        ('{"code":"TYPE_OF_TOMORROW"}', {'"a"': '"a"', '{"x":["1"]}': '{"x":["1"]}'}),
        (array_of(BOOL), {"[true,false]": [True, False], "[]": None, "null": None}),
        (array_of(INT64), {'["1","-9223372036854775808"]': [1, -(2**63)], "[5]": [5]}),
        (array_of(FLOAT64), {'[1.5,"-Infinity"]': [1.5, -math.inf]}),
        (array_of(FLOAT32), {"[0.5,3.140000104904175]": [0.5, 3.140000104904175]}),
        (array_of(NUMERIC), {'["1.10","0"]': ["1.10", "0"]}),
        (array_of(PG_NUMERIC), {'["1.10","NaN"]': ["1.10", "NaN"]}),
        (array_of(STRING), {'["a","","\\"[1]"]': ["a", "", '"[1]'], '[""]': [""]}),
        (array_of(BYTES), {'["AAEC",""]': [b"\x00\x01\x02", b""]}),
        (array_of(DATE), {'["1970-01-02","1969-12-31"]': [1, -1]}),
        (array_of(TIMESTAMP), {'["1970-01-01T00:00:00.000001999Z"]': [1]}),
        (array_of(JSON), {'["{\\"a\\":1}","null"]': ['{"a":1}', "null"]}),
        (array_of('{"code":"TYPE_OF_TOMORROW"}'), {'[{"a":1},"x"]': ['{"a":1}', '"x"']}),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_values_are_those_of_the_types_and_null_is_no_field(type_json: str, values: dict[str, Any]) -> None:
    assert of_column(type_json, *values, "null") == ([*values.values(), None], [])
    for text, value in values.items():
        assert of_column(type_json, text, mode="changelog") == ([value], [])
    assert of_column(type_json, "null") == ([None], [])


def test_a_double_that_is_not_a_number_stays_nan_and_minus_zero_keeps_its_sign() -> None:
    (nan, zero, whole), _ = of_column(FLOAT64, '"NaN"', "-0.0", "-0")
    assert math.isnan(nan)
    assert math.copysign(1, zero) == math.copysign(1, whole) == -1


def test_a_timestamp_as_text_has_all_its_digits() -> None:
    text = "2026-01-02T03:04:05.123456789Z"
    assert of_column(TIMESTAMP, f'"{text}"', timestamps="text") == ([text], [])


@pytest.mark.parametrize("element", [INT64, STRING, JSON, FLOAT64])
def test_an_array_as_json_is_its_json_and_may_hold_null(element: str) -> None:
    texts = {INT64: '["1",null]', STRING: '["a",null]', JSON: '["{\\"a\\":1}",null]', FLOAT64: '[1.5,"NaN",null]'}
    wanted = {INT64: [1, None], STRING: ["a", None], JSON: [{"a": 1}, None], FLOAT64: [1.5, "NaN", None]}
    values, refused = of_column(array_of(element), texts[element], "null", arrays="json")
    assert json.loads(values[0]) == wanted[element]
    assert (values[1], refused) == (None, [])


def test_merged_rows_are_upserts_and_deletes_and_a_delete_has_only_its_key() -> None:
    builder = builder_of(WIDE, "merge")
    full = '{"Id":"7","Code":"c","Name":"n","Tags":["a","b"]}'
    batch = enveloped(
        change(WIDE, full), change(WIDE, full, mod_type="UPDATE"), change(WIDE, full, full, mod_type="DELETE")
    )
    built = builder.build(batch, now=NOW)
    rows = decoded(builder, built)
    assert built.rejected == ()
    assert built.indexes.tolist() == [0, 1, 2, 3]
    for row, event in zip(rows, batch.to_pylist(), strict=True):
        assert row.pop("datastream_metadata") == {"uuid": event["uuid"], "source_timestamp": AT // 1_000_000}
        assert row.pop("_CHANGE_SEQUENCE_NUMBER") == event["change_sequence_number"]
    whole = {"Id": 7, "Name": "n", "Tags": ["a", "b"], "Code": "c", "_CHANGE_TYPE": "UPSERT"}
    key = {"Id": 7, "Code": "c", "_CHANGE_TYPE": "DELETE"}
    assert rows == [whole, whole, key, key]


def test_old_values_that_bigquery_cannot_hold_do_not_prevent_a_delete() -> None:
    columns = (
        column("Id", "INT64", 1, key=True),
        ColumnType("a", array_of(INT64), False, 2),
        ColumnType("n", PG_NUMERIC, False, 3),
        column("s", "STRING", 4),
    )
    text = f'{{"Id":"1","a":["1",null],"n":"NaN","s":"{"x" * 10_000_001}"}}'
    builder = builder_of(columns, "merge", numeric="bignumeric")
    built = builder.build(enveloped(change(columns, text, text, mod_type="DELETE")), now=NOW)
    assert built.rejected == ()
    assert all(set(row) & {"a", "n", "s"} == set() for row in decoded(builder, built))


def test_append_only_rows_name_the_kind_of_change() -> None:
    builder = builder_of(WIDE, "append-only")
    full = '{"Id":"7","Code":"c","Name":"n"}'
    batch = enveloped(*(change(WIDE, full, mod_type=kind) for kind in ("INSERT", "UPDATE", "DELETE")))
    rows = decoded(builder, builder.build(batch, now=NOW))
    events = batch.to_pylist()
    assert [row["datastream_metadata"] for row in rows] == [
        {
            "uuid": event["uuid"],
            "source_timestamp": AT // 1_000_000,
            "change_sequence_number": event["change_sequence_number"],
            "change_type": kind,
            "sort_keys": event["sort_keys"],
        }
        for event, kind in zip(events, ("INSERT", "UPDATE-INSERT", "DELETE"), strict=True)
    ]
    assert [row["Name"] for row in rows] == ["n", "n", "n"]
    assert not any("_CHANGE_TYPE" in row for row in rows)


def test_changelog_rows_have_the_columns_of_the_template() -> None:
    builder = builder_of(WIDE, "changelog")
    change_of = change(WIDE, '{"Id":"7","Code":"c"}', table_name="music.Singers", number_of_records_in_transaction=3)
    (row,) = decoded(builder, builder.build(enveloped(change_of), now=NOW))
    assert row == {
        "Id": 7,
        "Code": "c",
        "_metadata_spanner_mod_type": "INSERT",
        "_metadata_spanner_table_name": "music.Singers",
        "_metadata_spanner_commit_timestamp": AT // 1000,
        "_metadata_spanner_server_transaction_id": "tx",
        "_metadata_spanner_record_sequence": "00000001",
        "_metadata_spanner_is_last_record_in_transaction_in_partition": True,
        "_metadata_spanner_number_of_records_in_transaction": 3,
        "_metadata_spanner_number_of_partitions_in_transaction": 1,
        "_metadata_big_query_commit_timestamp": NOW // 1000,
    }


def test_the_metadata_of_a_load_names_the_change() -> None:
    builder = builder_of(WIDE, "merge-load")
    batch = enveloped(change(WIDE, '{"Id":"7","Code":"c"}', mod_type="UPDATE", value_capture_type="NEW_VALUES"))
    (row,) = decoded(builder, builder.build(batch, now=NOW))
    (event,) = batch.to_pylist()
    assert row["datastream_metadata"] == {
        "uuid": event["uuid"],
        "source_timestamp": AT // 1_000_000,
        "change_sequence_number": event["change_sequence_number"],
    }


def test_the_descriptor_is_whole_and_numbers_the_fields_in_their_order() -> None:
    columns = (*WIDE, ColumnType("d", DATE, False, 5), column("datastream_metadata_struct", "BYTES", 6))
    descriptor = builder_of(columns, "merge").descriptor
    of = FieldDescriptorProto
    assert [(f.number, f.name, f.label, f.type) for f in descriptor.field] == [
        (1, "Id", of.LABEL_OPTIONAL, of.TYPE_INT64),
        (2, "Name", of.LABEL_OPTIONAL, of.TYPE_STRING),
        (3, "Tags", of.LABEL_REPEATED, of.TYPE_STRING),
        (4, "Code", of.LABEL_OPTIONAL, of.TYPE_STRING),
        (5, "d", of.LABEL_OPTIONAL, of.TYPE_INT32),
        (6, "datastream_metadata_struct", of.LABEL_OPTIONAL, of.TYPE_BYTES),
        (7, "datastream_metadata", of.LABEL_OPTIONAL, of.TYPE_MESSAGE),
        (8, "_CHANGE_TYPE", of.LABEL_OPTIONAL, of.TYPE_STRING),
        (9, "_CHANGE_SEQUENCE_NUMBER", of.LABEL_OPTIONAL, of.TYPE_STRING),
    ]
    (nested,) = descriptor.nested_type
    assert descriptor.field[6].type_name == nested.name == "datastream_metadata_struct_"
    assert [field.name for field in nested.field] == ["uuid", "source_timestamp"]


@pytest.mark.parametrize("mode", MODES)
def test_a_table_may_have_a_thousand_columns(mode: Mode) -> None:
    columns = (
        column("Id", "INT64", 1, key=True),
        *(ColumnType(f"c{number}", (INT64, STRING, FLOAT64)[number % 3], False, number) for number in range(2, 1025)),
    )
    payload = json.dumps({"Id": "1", **{f"c{n}": (str(n), "s", n / 2)[n % 3] for n in range(2, 1025)}})
    builder = builder_of(columns, mode)
    (row,) = decoded(builder, builder.build(enveloped(change(columns, payload)), now=NOW))
    assert [row[f"c{n}"] for n in range(2, 1025)] == [(n, "s", n / 2)[n % 3] for n in range(2, 1025)]


def test_columns_may_have_any_name() -> None:
    named = {"1st": "_1st", "a-b": "a_b", "ünï": "_n_", 'quo"te': "quo_te", "back\\slash": "back_slash", "_table_": ""}
    named["_table_"] = "c_table_"
    columns = tuple(
        ColumnType(name, array_of(STRING) if name == "a-b" else STRING, False, n) for n, name in enumerate(named)
    )
    payload = json.dumps({name: [name] if name == "a-b" else name for name in named})
    for some in (columns, tuple(one for one in columns if '"' not in one.name and "\\" not in one.name)):
        builder = builder_of(some)
        kept = {one.name: json.loads(payload)[one.name] for one in some}
        (row,) = decoded(builder, builder.build(enveloped(change(some, json.dumps(kept))), now=NOW))
        del row["datastream_metadata"]
        assert row == {named[name]: value for name, value in kept.items()}


def test_columns_that_protobufs_json_would_call_alike_are_two() -> None:
    columns = (column("user_id", "STRING", 1), column("userId", "STRING", 2))
    builder = builder_of(columns)
    (row,) = decoded(builder, builder.build(enveloped(change(columns, '{"user_id":"a","userId":"b"}')), now=NOW))
    assert (row["user_id"], row["userId"]) == ("a", "b")


@pytest.mark.parametrize("mode", MODES)
def test_no_events_are_no_rows(mode: Mode) -> None:
    columns = tuple(
        ColumnType(f"c{number}", kind, number == 0, number)
        for number, kind in enumerate((TIMESTAMP, BOOL, FLOAT64, FLOAT32, NUMERIC, BYTES, DATE, array_of(STRING), JSON))
    )
    batch = enveloped(change(columns, "{}"))
    for empty in (batch.slice(0, 0), batch.slice(1), pa.RecordBatch.from_pylist([], batch.schema)):
        built = builder_of(columns, mode).build(empty, now=NOW)
        assert (len(built.rows), len(built.indexes), built.rejected) == (0, 0, ())


@pytest.mark.parametrize("mode", MODES)
def test_a_slice_of_a_batch_is_built_as_the_rows_that_it_holds(mode: Mode) -> None:
    payloads = [f'{{"Id":"{n}","Code":"{"c" * n}","Tags":{json.dumps(["t"] * (n % 4))}}}' for n in range(50)]
    batch = enveloped(
        *(change(WIDE, payload, mod_type=("INSERT", "DELETE")[n % 2]) for n, payload in enumerate(payloads))
    )
    builder = builder_of(WIDE, mode)
    whole = builder.build(batch, now=NOW)
    part = builder.build(batch.slice(17, 9), now=NOW)
    assert part.rows.to_pylist() == whole.rows.to_pylist()[17:26]
    assert part.indexes.tolist() == list(range(9))
    for n in range(50):
        assert builder.build(batch.slice(n, 1), now=NOW).rows.to_pylist() == whole.rows.to_pylist()[n : n + 1]


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_what_the_benchmark_compares_are_the_same_bytes(dialect: str) -> None:
    table, (batch, *_) = rows.events(dialect, 100)
    builder = RowBuilder(table, "merge")
    built = builder.build(batch, now=NOW)
    assert built.rows.to_pylist() == rows.messages(table, message_class(builder.descriptor), batch)
