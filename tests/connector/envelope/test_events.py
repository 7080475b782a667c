"""Events as Datastream's JSON lines."""

import random
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.core.timestamps import parse
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.envelope.events import EventWriter
from tests.connector.builders import AT, column, record
from tests.connector.envelope.column_values import array_of, json_values, simple
from tests.connector.envelope.plain_events import plain_lines

SOURCE_METADATA_OF_SPANNER = {
    "commit_timestamp": "date-time",
    "snapshot": bool,
    "project_id": str,
    "instance_id": str,
    "database_id": str,
    "change_stream_name": str,
    "table": str,
    "server_transaction_id": str,
    "record_sequence": str,
    "mod_index": int,
    "transaction_tag": str,
    "system_transaction": bool,
    "number_of_records_in_transaction": int,
    "value_capture_type": str,
    "mod_type": str,
    "primary_keys": list,
    "is_deleted": bool,
}
"""SpannerSourceMetadata of Datastream's AsyncAPI page, v1."""


def written(type_json: str, text: str) -> str:
    """The text that a value, given in Spanner's JSON, has in an event."""
    schema = TableSchema.of("T", [ColumnType("v", type_json, False, 1)])
    payload = EventWriter(lambda _: schema).payload(f'{{"v":{text}}}', schema.key).decode()
    assert payload.startswith('{"v":')
    return payload[len('{"v":') : -1]


def written_by_column(type_json: str, text: str) -> str:
    """The same, where rows are written a column at a time."""
    column_types = (ColumnType("v", type_json, False, 1),)
    _, batch = built(record(column_types=column_types, mods=(Mod("{}", f'{{"v":{text}}}', "{}"),)))
    schema = TableSchema.of("Singers", column_types)
    (line,) = EventWriter(lambda _: schema).lines(batch)
    return line.decode().partition('"payload":{"v":')[2].removesuffix("}}\n")


def built(*records: DataChangeRecord) -> tuple[SchemaRegistry, pa.RecordBatch]:
    registry = SchemaRegistry()
    source = Source("p", "i", "d", "s", "d")
    builder = EnvelopeBuilder(source, stream_name=None, read_method="spanner-cdc")
    return registry, builder.build(Changes.of(records), registry, 1)


def events(*records: DataChangeRecord) -> list[dict[str, Any]]:
    registry, batch = built(*records)
    lines = list(EventWriter(registry.by_key).lines(batch))
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    return [orjson.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("type_json", "spanner", "datastream"),
    [
        (simple("BOOL"), "true", "true"),
        (simple("INT64"), '"42"', "42"),
        (simple("INT64"), '"-9223372036854775808"', "-9223372036854775808"),
        (simple("INT64"), '"9223372036854775807"', "9223372036854775807"),
        ('{"code":"INT64","type_annotation":"PG_OID"}', '"4294967295"', "4294967295"),
        (simple("FLOAT64"), "1.5", "1.5"),
        (simple("FLOAT64"), '"NaN"', '"NaN"'),
        (simple("FLOAT64"), '"Infinity"', '"Infinity"'),
        (simple("FLOAT64"), '"-Infinity"', '"-Infinity"'),
        (simple("FLOAT32"), "3.140000104904175", "3.140000104904175"),
        (simple("FLOAT32"), '"NaN"', '"NaN"'),
        (simple("NUMERIC"), '"1.10"', '"1.10"'),
        (simple("NUMERIC"), '"-99999999999999999999999999999.999999999"', '"-99999999999999999999999999999.999999999"'),
        ('{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}', '"NaN"', '"NaN"'),
        (simple("STRING"), '"12"', '"12"'),
        (simple("STRING"), '"NaN"', '"NaN"'),
        (simple("STRING"), '"{\\"a\\":1}"', '"{\\"a\\":1}"'),
        (simple("STRING"), '""', '""'),
        (simple("UUID"), '"aa-bb"', '"aa-bb"'),
        (simple("BYTES"), '"AAEC"', '"AAEC"'),
        ('{"code":"PROTO","proto_type_fqn":"a.B"}', '"CgA="', '"CgA="'),
        ('{"code":"ENUM","proto_type_fqn":"a.C"}', '"3"', "3"),
        (simple("DATE"), '"2026-01-02"', '"2026-01-02"'),
        (simple("TIMESTAMP"), '"2026-01-02T03:04:05.123456789Z"', '"2026-01-02T03:04:05.123456789Z"'),
        (simple("INTERVAL"), '"P1Y2M3DT4H5M6.5S"', '"P1Y2M3DT4H5M6.5S"'),
        (simple("JSON"), '"{\\"a\\":[1,null,{\\"b\\":\\"c\\"}]}"', '{"a":[1,null,{"b":"c"}]}'),
        (simple("JSON"), '"\\"text\\""', '"text"'),
        (simple("JSON"), '"null"', "null"),
        (simple("JSON"), '"12345678901234567890123"', "12345678901234567890123"),
        ('{"code":"JSON","type_annotation":"PG_JSONB"}', '"{\\"a\\": 1.10}"', '{"a": 1.10}'),
        (array_of(simple("INT64")), '["1",null,"2"]', "[1,null,2]"),
        (array_of(simple("INT64")), "[]", "[]"),
        (array_of(simple("STRING")), '["a",null]', '["a",null]'),
        (array_of(simple("FLOAT64")), '[1.5,"NaN",null]', '[1.5,"NaN",null]'),
        (array_of(simple("JSON")), '["{\\"a\\":1}",null]', '[{"a":1},null]'),
        (array_of('{"code":"ENUM","proto_type_fqn":"a.C"}'), '["1"]', "[1]"),
        (simple("TYPE_OF_TOMORROW"), '{"x":["1"]}', '{"x":["1"]}'),
        (array_of(simple("TYPE_OF_TOMORROW")), '["1"]', '["1"]'),
        ('{"code":"STRUCT"}', '["1"]', '["1"]'),
    ],
)
def test_a_value_becomes_what_datastream_writes(type_json: str, spanner: str, datastream: str) -> None:
    assert written(type_json, spanner) == datastream

    assert written_by_column(type_json, spanner) == datastream


@pytest.mark.parametrize("code", ["BOOL", "INT64", "FLOAT64", "NUMERIC", "STRING", "BYTES", "DATE", "JSON", "ENUM"])
def test_null_is_null_in_every_type(code: str) -> None:
    assert written(simple(code), "null") == "null"
    assert written(array_of(simple(code)), "null") == "null"
    assert written_by_column(simple(code), "null") == "null"
    assert written_by_column(array_of(simple(code)), "null") == "null"


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_keeps_all_its_digits(number: int) -> None:
    assert written(simple("INT64"), f'"{number}"') == str(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_the_same_double(number: float) -> None:
    assert float(written(simple("FLOAT64"), orjson.dumps(number).decode())) == number


@given(st.text())
def test_a_string_is_the_same_string(text: str) -> None:
    assert orjson.loads(written(simple("STRING"), orjson.dumps(text).decode())) == text


@given(json_values, st.booleans())
def test_json_is_nested_and_equal_and_stays_on_one_line(value: object, pretty: bool) -> None:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if pretty else 0).decode()
    out = written(simple("JSON"), orjson.dumps(text).decode())
    assert orjson.loads(out) == value
    assert "\n" not in out


def test_json_of_several_lines_is_written_on_one_line_with_every_digit() -> None:
    number = "12345678901234567890123"
    text = orjson.dumps(f'{{\n"a":{number},\r\n"b":1.10}}').decode()
    assert written(simple("JSON"), text) == f'{{ "a":{number},  "b":1.10}}'


def test_a_column_that_was_not_captured_is_absent() -> None:
    schema = TableSchema.of("T", [column("Id", "INT64", 1, key=True), column("A", "INT64", 2), column("B", "JSON", 3)])
    writer = EventWriter(lambda _: schema)
    assert writer.payload('{"Id":"1","A":null}', schema.key) == b'{"Id":1,"A":null}'


def test_a_column_that_is_not_in_the_schema_is_kept() -> None:
    schema = TableSchema.of("T", [column("Id", "INT64", 1)])
    assert EventWriter(lambda _: schema).payload('{"Id":"1","X":"2"}', schema.key) == b'{"Id":1,"X":"2"}'


def test_a_schema_is_looked_up_once() -> None:
    asked = []
    schema = TableSchema.of("T", [column("Id", "INT64", 1)])

    def schema_of(key: str) -> TableSchema:
        asked.append(key)
        return schema

    writer = EventWriter(schema_of)
    for _ in range(3):
        writer.payload('{"Id":"1"}', "key")
    assert asked == ["key"]


def test_an_event_has_exactly_the_envelopes_fields() -> None:
    (event,) = events(record())
    assert list(event) == [
        "stream_name",
        "read_method",
        "object",
        "schema_key",
        "uuid",
        "read_timestamp",
        "source_timestamp",
        "sort_keys",
        "source_metadata",
        "payload",
    ]
    assert event["payload"] == {"Id": 1, "Name": "a"}


def test_sort_keys_are_two_numbers_a_text_and_a_number() -> None:
    (event,) = events(record())
    assert event["sort_keys"] == [AT // 1_000_000, AT, "00000001", 0]


def test_the_source_timestamp_has_every_digit_and_the_read_timestamp_microseconds() -> None:
    (event,) = events(record(read_timestamp=AT + 7))
    assert parse(event["source_timestamp"]) == AT
    assert parse(event["read_timestamp"]) == AT // 1000 * 1000
    assert event["source_timestamp"].endswith("Z")


def test_the_source_metadata_has_the_fields_that_datastream_documents() -> None:
    (event,) = events(record())
    metadata = event["source_metadata"]
    for name, kind in SOURCE_METADATA_OF_SPANNER.items():
        if kind == "date-time":
            assert parse(metadata[name]) == AT
        else:
            assert type(metadata[name]) is kind, name
    assert all(isinstance(key, str) for key in metadata["primary_keys"])
    assert event["source_metadata"].keys() - SOURCE_METADATA_OF_SPANNER.keys() == {
        "schema",
        "database",
        "number_of_partitions_in_transaction",
        "is_last_record_in_transaction_in_partition",
        "change_type",
        "scn",
        "rs_id",
        "ssn",
        "tx_id",
    }


def test_a_delete_of_keys_alone_has_a_payload() -> None:
    (event,) = events(record(mod_type="DELETE", mods=(Mod('{"Id":"1"}', "{}", "{}"),)))
    assert event["payload"] == {"Id": 1}
    assert event["source_metadata"]["is_deleted"]


def test_lines_are_in_the_order_of_the_rows_and_each_has_its_own_schema() -> None:
    first = record(column_types=(column("Id", "INT64", 1, key=True),), mods=(Mod('{"Id":"1"}', "{}", "{}"),))
    second = record(
        record_sequence="00000002",
        column_types=(column("Id", "STRING", 1, key=True),),
        mods=(Mod('{"Id":"1"}', "{}", "{}"),),
    )
    assert [event["payload"] for event in events(first, second)] == [{"Id": 1}, {"Id": "1"}]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
integers = st.none() | st.integers(-(2**63), 2**63 - 1).map(str)
doubles = (
    st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "Infinity", "-Infinity"])
)
documents = st.none() | st.tuples(json_values, st.booleans()).map(
    lambda given: orjson.dumps(given[0], option=orjson.OPT_INDENT_2 if given[1] else 0).decode()
)
VALUES = {
    simple("INT64"): integers,
    simple("FLOAT64"): doubles,
    simple("STRING"): st.none() | texts,
    simple("BOOL"): st.none() | st.booleans(),
    simple("JSON"): documents,
    array_of(simple("INT64")): st.none() | st.lists(integers, max_size=3),
    array_of(simple("STRING")): st.none() | st.lists(st.none() | texts, max_size=3),
    array_of(simple("JSON")): st.none() | st.lists(documents, max_size=3),
    simple("TYPE_OF_TOMORROW"): st.none() | texts | st.lists(texts, max_size=2),
}


@st.composite
def changes_of_a_table(draw: st.DrawFn, table: str) -> list[DataChangeRecord]:
    names = draw(st.lists(texts.filter(lambda name: name != "Id"), unique=True, max_size=4))
    types = [draw(st.sampled_from(sorted(VALUES))) for _ in names]
    columns = (column("Id", "INT64", 1, key=True), *map(ColumnType, names, types, [False] * 4, range(2, 6)))
    out = []
    for _ in range(draw(st.integers(0, 4))):
        row = {name: draw(VALUES[kind]) for name, kind in zip(names, types, strict=True) if draw(st.booleans())}
        pretty = orjson.OPT_INDENT_2 if draw(st.booleans()) else 0
        mod = Mod(f'{{"Id":"{draw(st.integers(0, 9))}"}}', orjson.dumps(row, option=pretty).decode(), "{}")
        out.append(
            record(
                table_name=table,
                column_types=columns,
                mods=(mod,) * draw(st.integers(1, 2)),
                mod_type=draw(st.sampled_from(["INSERT", "UPDATE", "DELETE"])),
                transaction_tag=draw(texts),
                record_sequence=f"{draw(st.integers(0, 9)):08d}",
            )
        )
    return out


@given(changes_of_a_table("A"), changes_of_a_table("s.B"), st.randoms())
def test_rows_written_by_column_are_the_rows_written_one_by_one(
    first: list[DataChangeRecord], second: list[DataChangeRecord], order: random.Random
) -> None:
    records = [*first, *second]
    order.shuffle(records)
    registry, batch = built(*records)
    start = order.randrange(batch.num_rows + 1)
    for some in (batch, batch.slice(start)):
        writer = EventWriter(registry.by_key)
        by_column, one_by_one = list(writer.lines(some)), list(plain_lines(writer, some))
        assert list(map(orjson.loads, by_column)) == list(map(orjson.loads, one_by_one))
        assert [line.partition(b'"payload":')[0] for line in by_column] == [
            line.partition(b'"payload":')[0] for line in one_by_one
        ]


def test_payloads_that_cannot_be_parsed_together_are_parsed_one_by_one() -> None:
    columns = (column("Id", "INT64", 1, key=True), column('quo"te', "INT64", 2), column("A", "INT64", 3))
    schema = TableSchema.of("Singers", columns)
    _, batch = built(
        record(column_types=columns, mods=(Mod('{"Id":"1"}', '{"quo\\"te":"2"}', "{}"),)),
        record(column_types=columns, mods=(Mod('{"Id":"1"}', '{"A":\n"2"}', "{}"),)),
        record(column_types=columns, mods=(Mod('{"Id":"1"}', '{"Unknown":"2"}', "{}"),)),
    )
    lines = EventWriter(lambda _: schema).lines(batch)
    assert [orjson.loads(line)["payload"] for line in lines] == [
        {"Id": 1, 'quo"te': 2},
        {"Id": 1, "A": 2},
        {"Id": 1, "Unknown": "2"},
    ]
