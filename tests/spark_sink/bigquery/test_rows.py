"""Rows for BigQuery, read back by protobuf's own library, hold what the events hold; what cannot be is refused."""

import json
import math
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message

from benchmarks import rows
from benchmarks.rows import message_class
from connector.core.changes import Changes
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.envelope.envelope import EnvelopeBuilder, Source
from spark_sink.bigquery import rows as bigquery_rows
from spark_sink.bigquery.rows import BuiltRows, RowBuilder, check_whole_rows
from spark_sink.bigquery.table import Mode, Shape, bigquery_table
from spark_sink.errors import SinkError
from tests.connector.builders import AT, column, record

NOW = 1_790_000_000_123_456_789
MODES: tuple[Mode, ...] = get_args(Mode)
INT64, BOOL, FLOAT64, FLOAT32, NUMERIC, STRING, BYTES, DATE, TIMESTAMP, JSON = (
    f'{{"code":"{code}"}}'
    for code in ("INT64", "BOOL", "FLOAT64", "FLOAT32", "NUMERIC", "STRING", "BYTES", "DATE", "TIMESTAMP", "JSON")
)
PG_NUMERIC = '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}'
JSONB = '{"code":"JSON","type_annotation":"PG_JSONB"}'


def array_of(element: str) -> str:
    return f'{{"array_element_type":{element},"code":"ARRAY"}}'


def fields_of(message: Message) -> dict[str, Any]:
    """The fields that a message has; what stands in no field of the schema fails."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is not None:
            found[field.name] = fields_of(value)
        else:
            found[field.name] = list(value) if field.is_repeated else value
    return found


def decoded(builder: RowBuilder, built: BuiltRows) -> list[dict[str, Any]]:
    """The rows' fields; a row that protobuf would write otherwise fails."""
    of = message_class(builder.descriptor)
    found = []
    for row in built.rows.to_pylist():
        message = of.FromString(row)
        assert message.SerializeToString() == row
        found.append(fields_of(message))
    return found


def enveloped(*records: DataChangeRecord) -> pa.RecordBatch:
    builder = EnvelopeBuilder(Source("p", "i", "d", "Everything", "d"), stream_name=None, read_method="spanner-cdc")
    return builder.build(Changes.of(records), SchemaRegistry(), 1)


def builder_of(columns: tuple[ColumnType, ...], mode: Mode = "append-only", **options: str) -> RowBuilder:
    return RowBuilder(bigquery_table(TableSchema.of("Singers", columns), Shape("ds", mode, **options)), mode)


def change(columns: tuple[ColumnType, ...], *payloads: str, **changed: Any) -> DataChangeRecord:
    """A record whose mods have these payloads, keys among them."""
    mods = tuple(
        Mod(payload, "{}", "{}") if changed.get("mod_type") != "DELETE" else Mod("{}", "{}", payload)
        for payload in payloads
    )
    return record(**{"column_types": columns, "mods": mods, "value_capture_type": "NEW_ROW", **changed})


def of_column(type_json: str, *texts: str, mode: Mode = "append-only", **options: str) -> tuple[list[Any], list[str]]:
    """The values of a column ``v`` with these texts, and why others were refused."""
    columns = (column("Id", "INT64", 1, key=True), ColumnType("v", type_json, False, 2))
    builder = builder_of(columns, mode, **options)
    built = builder.build(enveloped(change(columns, *(f'{{"Id":"1","v":{text}}}' for text in texts))), now=NOW)
    return [row.get("v") for row in decoded(builder, built)], [refused.reason for refused in built.refused]


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


def test_a_double_that_is_no_number_stays_one_and_minus_zero_keeps_its_sign() -> None:
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


WIDE = (
    column("Id", "INT64", 1, key=True),
    column("Name", "STRING", 2),
    ColumnType("Tags", array_of(STRING), False, 3),
    column("Code", "STRING", 4, key=True),
)


def test_merged_rows_are_upserts_and_deletes_and_a_delete_has_only_its_key() -> None:
    builder = builder_of(WIDE, "merge")
    full = '{"Id":"7","Code":"c","Name":"n","Tags":["a","b"]}'
    batch = enveloped(
        change(WIDE, full), change(WIDE, full, mod_type="UPDATE"), change(WIDE, full, full, mod_type="DELETE")
    )
    built = builder.build(batch, now=NOW)
    rows = decoded(builder, built)
    assert built.refused == ()
    assert built.indexes.tolist() == [0, 1, 2, 3]
    for row, event in zip(rows, batch.to_pylist(), strict=True):
        assert row.pop("datastream_metadata") == {"uuid": event["uuid"], "source_timestamp": AT // 1_000_000}
        assert row.pop("_CHANGE_SEQUENCE_NUMBER") == event["change_sequence_number"]
    whole = {"Id": 7, "Name": "n", "Tags": ["a", "b"], "Code": "c", "_CHANGE_TYPE": "UPSERT"}
    key = {"Id": 7, "Code": "c", "_CHANGE_TYPE": "DELETE"}
    assert rows == [whole, whole, key, key]


def test_old_values_that_bigquery_cannot_hold_do_not_keep_a_delete_back() -> None:
    columns = (
        column("Id", "INT64", 1, key=True),
        ColumnType("a", array_of(INT64), False, 2),
        ColumnType("n", PG_NUMERIC, False, 3),
        column("s", "STRING", 4),
    )
    text = f'{{"Id":"1","a":["1",null],"n":"NaN","s":"{"x" * 10_000_001}"}}'
    builder = builder_of(columns, "merge", numeric="bignumeric")
    built = builder.build(enveloped(change(columns, text, text, mod_type="DELETE")), now=NOW)
    assert built.refused == ()
    assert all(set(row) & {"a", "n", "s"} == set() for row in decoded(builder, built))


def test_append_only_rows_tell_what_happened() -> None:
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


@pytest.mark.parametrize(
    ("type_json", "text", "reason"),
    [
        (INT64, '"secret"', "column v of table Singers holds a value that does not fit its type"),
        (INT64, '"9223372036854775808"', "column v of table Singers"),
        (DATE, '"secret"', "column v of table Singers"),
        (TIMESTAMP, '"secret"', "column v of table Singers"),
        (BYTES, '"secret!"', "column v of table Singers"),
        (FLOAT64, '"secret"', "column v of table Singers"),
        (STRING, '["secret"]', "column v of table Singers"),
        (array_of(INT64), '["secret"]', "column v of table Singers"),
        (array_of(STRING), '"secret"', "column v of table Singers"),
        (array_of(STRING), '{"secret":1}', "column v of table Singers"),
        (NUMERIC, '"NaN"', "column v holds a number that BigQuery's NUMERIC cannot"),
        (NUMERIC, '"0.1234567891"', "column v holds a number that BigQuery's NUMERIC cannot"),
        (NUMERIC, f'"1{"0" * 29}"', "column v holds a number that BigQuery's NUMERIC cannot"),
        (array_of(NUMERIC), '["1","secret"]', "column v holds a number that BigQuery's NUMERIC cannot"),
        (array_of(INT64), '["1",null,"2"]', "column v holds a NULL inside an array, which BigQuery's REPEATED"),
        (array_of(TIMESTAMP), "[null]", "columns cannot: set sink.arrays: json"),
        (array_of('{"code":"TYPE_OF_TOMORROW"}'), '["secret",null]', "set sink.arrays: json"),
    ],
)
def test_what_bigquery_cannot_hold_is_refused_and_the_others_are_built(type_json: str, text: str, reason: str) -> None:
    columns = (column("Id", "INT64", 1, key=True), ColumnType("v", type_json, False, 2))
    bad = {3, 4, 11}
    payloads = [f'{{"Id":"{n}","v":{text if n in bad else "null"}}}' for n in range(13)]
    builder = builder_of(columns, "merge")
    built = builder.build(enveloped(change(columns, *payloads)), now=NOW)
    assert [refused.index for refused in built.refused] == [3, 4, 11]
    for refused in built.refused:
        assert reason in refused.reason
        assert "secret" not in refused.reason
        assert "Avro" not in refused.reason
    assert [row["Id"] for row in decoded(builder, built)] == [n for n in range(13) if n not in bad]
    assert built.indexes.tolist() == [n for n in range(13) if n not in bad]
    assert built.indexes.dtype == np.int64


def test_a_bignumeric_has_38_digits_before_the_point_and_after_it() -> None:
    good, bad = f'"{"9" * 38}.{"9" * 38}"', [f'"{"9" * 40}"', f'"0.{"1" * 39}"', '"NaN"']
    values, refused = of_column(PG_NUMERIC, *bad, good, numeric="bignumeric")
    assert values == [json.loads(good)]
    assert refused == ["column v holds a number that BigQuery's BIGNUMERIC cannot"] * 3


@pytest.mark.parametrize("payload", ['{"Name":"n"}', '{"Id":null,"Code":"c"}', "{}"])
def test_a_merged_row_without_its_whole_key_is_refused(payload: str) -> None:
    batch = enveloped(change(WIDE, payload, '{"Id":"7","Code":"c"}'))
    built = builder_of(WIDE, "merge").build(batch, now=NOW)
    assert built.indexes.tolist() == [1]
    assert [refused.reason for refused in built.refused] == ["the key column Id is NULL or missing"]
    appended = builder_of(WIDE, "append-only").build(batch, now=NOW)
    assert appended.refused == ()


def test_a_key_that_would_lose_digits_is_refused() -> None:
    columns = (ColumnType("T", TIMESTAMP, True, 1),)
    texts = ("05.123456789Z", "05.123456Z", "05.123456000Z", "05.000000001Z", "05Z", "05.1234567+01:00")
    batch = enveloped(change(columns, *(f'{{"T":"2026-01-02T03:04:{text}"}}' for text in texts)))
    built = builder_of(columns, "merge").build(batch, now=NOW)
    assert [refused.index for refused in built.refused] == [0, 3, 5]
    cannot = "the key column T holds digits below a microsecond, which BigQuery's TIMESTAMP has not"
    assert {refused.reason for refused in built.refused} == {
        f"{cannot}: set sink.timestamps: text, and take another sink.dataset, for a key's column keeps its type"
    }
    assert len(builder_of(columns, "merge", timestamps="text").build(batch, now=NOW).rows) == 6
    assert len(builder_of(columns, "append-only").build(batch, now=NOW).rows) == 6


def test_a_key_that_is_no_timestamp_is_refused() -> None:
    columns = (ColumnType("T", TIMESTAMP, True, 1),)
    batch = enveloped(change(columns, '{"T":"secret"}', '{"T":"2026-01-02T03:04:05Z"}'))
    (refused,) = builder_of(columns, "merge").build(batch, now=NOW).refused
    assert refused.reason == "the key column T holds a text that is no timestamp"


@pytest.mark.parametrize("payload", [None, "", "null", "[1]", "5", '{"Id":"1"', '{"Id":"1"},{"Id":"2"}'])
def test_a_payload_that_is_no_object_is_refused(payload: str | None) -> None:
    columns = (column("Id", "INT64", 1, key=True),)
    batch = enveloped(change(columns, '{"Id":"1"}', '{"Id":"2"}', '{"Id":"3"}'))
    at = batch.schema.get_field_index("payload")
    payloads = ['{"Id":"1"}', payload, '{"Id":"3"}']
    builder = builder_of(columns)
    built = builder.build(batch.set_column(at, "payload", pa.array(payloads, pa.string())), now=NOW)
    assert [refused.index for refused in built.refused] == [1]
    assert "the row of table Singers" in built.refused[0].reason
    assert [row["Id"] for row in decoded(builder, built)] == [1, 3]


def test_payloads_that_are_objects_only_together_are_refused() -> None:
    columns = (column("Id", "INT64", 1, key=True), column("Name", "STRING", 2))
    batch = enveloped(change(columns, "{}", "{}"))
    at = batch.schema.get_field_index("payload")
    halves = pa.array(['{"Id":"1"', '"Name":"n"}'])
    assert len(builder_of(columns).build(batch.set_column(at, "payload", halves), now=NOW).refused) == 2


def test_a_column_that_the_table_does_not_have_is_not_lost_silently() -> None:
    columns = (column("Id", "INT64", 1, key=True),)
    batch = enveloped(change(columns, '{"Id":"1"}', '{"Id":"2","New":"secret"}'))
    (refused,) = builder_of(columns).build(batch, now=NOW).refused
    assert refused.index == 1
    assert "column New, which the schema does not know, of table Singers" in refused.reason
    assert "secret" not in refused.reason


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
        assert (len(built.rows), len(built.indexes), built.refused) == (0, 0, ())


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


def test_a_row_that_is_too_large_is_refused() -> None:
    columns = (column("Id", "INT64", 1, key=True), column("s", "STRING", 2))
    builder = builder_of(columns, "merge")
    small = builder.build(enveloped(change(columns, '{"Id":"1","s":""}')), now=NOW)
    room = bigquery_rows.LARGEST - len(small.rows[0].as_py()) - 3  # the length takes three bytes more
    payloads = [f'{{"Id":"1","s":"{"x" * length}"}}' for length in (1, room, room + 1, 12_000_000, 2)]
    built = builder.build(enveloped(change(columns, *payloads)), now=NOW)
    assert built.indexes.tolist() == [0, 1, 4]
    assert len(built.rows[1].as_py()) == bigquery_rows.LARGEST
    assert [(refused.index, refused.reason) for refused in built.refused] == [
        (number, "the row is too large for BigQuery: it has more than 9,500,000 bytes") for number in (2, 3)
    ]


def test_a_merged_event_without_its_sequence_number_is_refused() -> None:
    batch = enveloped(change(WIDE, '{"Id":"7","Code":"c"}'))
    at = batch.schema.get_field_index("change_sequence_number")
    batch = batch.set_column(at, "change_sequence_number", pa.nulls(1, pa.string()))
    (refused,) = builder_of(WIDE, "merge").build(batch, now=NOW).refused
    assert refused.reason == "the event has no change_sequence_number"


@pytest.mark.parametrize("captured", ["OLD_AND_NEW_VALUES", "NEW_VALUES", None])
def test_updates_that_hold_only_what_changed_are_never_merged(captured: str | None) -> None:
    full = '{"Id":"7","Code":"c"}'
    inserts = change(WIDE, full, value_capture_type=captured or "")
    batch = enveloped(inserts, change(WIDE, full, mod_type="UPDATE", value_capture_type=captured or ""))
    if captured is None:
        batch = without_capture_type(batch)
    check_whole_rows(batch.slice(0, 1))
    for check in (check_whole_rows, lambda rows: builder_of(WIDE, "merge").build(rows, now=NOW)):
        with pytest.raises(SinkError) as caught:
            check(batch)
        assert str(caught.value) == (
            "table Singers has an update without the columns that did not change, which would be NULL: merge needs"
            f" whole rows, and change stream Everything captures {captured}: ALTER CHANGE STREAM Everything SET OPTIONS"
            " (value_capture_type = 'NEW_ROW') (PostgreSQL: ALTER CHANGE STREAM \"Everything\" SET"
            " (value_capture_type = 'NEW_ROW')), or take mode merge-load"
        )
    assert builder_of(WIDE, "append-only").build(batch, now=NOW).refused == ()


def without_capture_type(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = [
        {**row, "source_metadata": {**row["source_metadata"], "value_capture_type": None}} for row in batch.to_pylist()
    ]
    return pa.RecordBatch.from_pylist(rows, batch.schema)


@pytest.mark.parametrize("captured", ["NEW_ROW", "NEW_ROW_AND_OLD_VALUES"])
def test_updates_of_whole_rows_are_merged(captured: str) -> None:
    batch = enveloped(change(WIDE, '{"Id":"7","Code":"c"}', mod_type="UPDATE", value_capture_type=captured))
    assert len(builder_of(WIDE, "merge").build(batch, now=NOW).rows) == 1


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_what_the_benchmark_compares_are_the_same_bytes(dialect: str) -> None:
    table, (batch, *_) = rows.events(dialect, 100)
    builder = RowBuilder(table, "merge")
    built = builder.build(batch, now=NOW)
    assert built.rows.to_pylist() == rows.messages(table, message_class(builder.descriptor), batch)
