"""Avro files, read by fastavro, contain the same events as JSON lines."""

import io
import json
import math
from base64 import b64decode
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.column_kinds import ColumnKind, Layout, SpannerType
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.core.timestamps import parse
from connector.envelope.avro_schema import AvroColumn, columns_of
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.envelope.events import EventWriter
from spark_sink.encoding import avro as avro_module
from spark_sink.encoding.avro import Avro
from spark_sink.encoding.avro_columns import varint, varints
from spark_sink.encoding.file_format import Series
from spark_sink.errors import SinkError
from tests.connector.builders import column, record

PATH = "d_Singers/2026/01/02/03/04/file.avro"
LONGEST = "x" * 10_000_000
ARRAY_OF = '{{"array_element_type":{},"code":"ARRAY"}}'
INT64, FLOAT64, FLOAT32, JSON, STRING, BYTES = (
    f'{{"code":"{code}"}}' for code in ("INT64", "FLOAT64", "FLOAT32", "JSON", "STRING", "BYTES")
)
PG_NUMERIC = '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}'
EDGES: list[tuple[str, list[str]]] = [
    ('{"code":"BOOL"}', ["true", "false"]),
    (INT64, ['"0"', '"-1"', '"63"', '"64"', '"-9223372036854775808"', '"9223372036854775807"', "7"]),
    ('{"code":"INT64","type_annotation":"PG_OID"}', ['"4294967295"']),
    ('{"code":"ENUM","proto_type_fqn":"a.C"}', ['"3"']),
    (FLOAT64, ["0", "-0", "-0.0", "1.5", "5e-324", "1.7976931348623157e308", '"NaN"', '"Infinity"', '"-Infinity"']),
    (FLOAT32, ["-0.0", "3.140000104904175", "3.4028234663852886e+38", "1e-45", '"NaN"', '"-Infinity"']),
    ('{"code":"NUMERIC"}', ['"0"', '"-1.10"', '"99999999999999999999999999999.999999999"', '"-0.000000001"']),
    ('{"code":"NUMERIC"}', ['"-99999999999999999999999999999.999999999"']),
    (PG_NUMERIC, ['"NaN"', '"1.10"', '"' + "9" * 200 + '.5"']),
    (STRING, ['""', '"12"', '"null"', '"a\\"b\\\\c\\n\\u0001\\ud83d\\ude00ü\\u2028"', f'"{LONGEST}"']),
    ('{"code":"UUID"}', ['"00000000-0000-4000-8000-000000000000"']),
    ('{"code":"INTERVAL"}', ['"P1Y2M3DT4H5M6.5S"']),
    (BYTES, ['""', '"null"', '"AAEC"', '"/+8="', '"' + "QUJD" * 2_500_000 + '"']),
    ('{"code":"PROTO","proto_type_fqn":"a.B"}', ['"CgA="']),
    ('{"code":"DATE"}', ['"0001-01-01"', '"1969-12-31"', '"1970-01-01"', '"9999-12-31"']),
    ('{"code":"TIMESTAMP"}', ['"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999999Z"', '"1970-01-01T00:00:00Z"']),
    (
        '{"code":"TIMESTAMP"}',
        ['"1969-12-31T23:59:59.9999999Z"', '"2026-01-02T03:04:05.1Z"', '"2026-01-02T03:04:05+01:30"'],
    ),
    (
        JSON,
        ['"null"', '"1.10"', '"\\"text\\""', '"{\\"a\\":[1,null,{\\"b\\":\\"c\\"}]}"', '"{\\n\\"a\\": 1}"', '{"a":1}'],
    ),
    ('{"code":"JSON","type_annotation":"PG_JSONB"}', ['"{\\"a\\": 12345678901234567890123}"']),
    (ARRAY_OF.format(INT64), ["[]", '["1",null,"-9223372036854775808"]', "[null]"]),
    (ARRAY_OF.format(STRING), ["[]", '["a",null,"","\\"[1]"]']),
    (ARRAY_OF.format(FLOAT64), ['[1.5,"NaN",null,"-Infinity"]']),
    (ARRAY_OF.format('{"code":"NUMERIC"}'), ['["1.10",null]']),
    (ARRAY_OF.format(JSON), ["[]", '["{\\"a\\":1}",null,"null"]']),
    (ARRAY_OF.format('{"code":"BOOL"}'), ["[true,false,null]"]),
    (ARRAY_OF.format('{"code":"TIMESTAMP"}'), ['["2026-01-02T03:04:05.123456789Z",null]']),
    ('{"code":"TYPE_OF_TOMORROW"}', ['"a"', "1", '{"x":["1"]}']),
    ('{"code":"STRUCT"}', ['["1"]']),
]


def built(*records: DataChangeRecord) -> tuple[SchemaRegistry, pa.RecordBatch]:
    registry = SchemaRegistry()
    source = Source("p", "i", "d", "s", "d")
    builder = EnvelopeBuilder(source, stream_name=None, read_method="spanner-cdc")
    return registry, builder.build(Changes.of(records), registry, 1)


def series_of(batch: pa.RecordBatch) -> Series:
    return Series(*(batch.column(name)[0].as_py() for name in ("object", "schema_key", "read_method")))


def written(registry: SchemaRegistry, batch: pa.RecordBatch, *, deflate: bool = False, path: str = PATH) -> bytes:
    avro = Avro(registry.by_key, deflate=deflate)
    rows = avro.encode(series_of(batch), batch)
    assert len(rows) == batch.num_rows
    return avro.header(series_of(batch), path) + avro.framed(rows, 0, len(rows), path)


def read(data: bytes) -> list[dict[str, Any]]:
    return [event for event in fastavro.reader(io.BytesIO(data)) if isinstance(event, dict)]


def milliseconds(timestamp: datetime) -> int:
    return (timestamp - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def same(value: object, event: object, column: AvroColumn) -> bool:
    """True if a value read from Avro is the one in the JSON event."""
    if value is None or event is None:
        return event is None and (value is None or (column.kind is ColumnKind.JSON and value == "null"))
    if column.layout is Layout.JSON_ARRAY or column.kind in (ColumnKind.JSON, ColumnKind.UNKNOWN):
        assert isinstance(value, str)
        return bool(json.loads(value) == event)
    match column.kind:
        case ColumnKind.FLOAT32 | ColumnKind.FLOAT64:
            assert isinstance(value, float)
            number = float(str(event))
            expected = float(np.float32(number)) if column.kind is ColumnKind.FLOAT32 else number
            return math.isnan(value) if math.isnan(expected) else value == expected
        case ColumnKind.NUMERIC:
            return value == Decimal(str(event))
        case ColumnKind.BYTES | ColumnKind.PROTO:
            return value == b64decode(str(event))
        case ColumnKind.DATE:
            return value == date.fromisoformat(str(event))
        case ColumnKind.TIMESTAMP:
            assert isinstance(value, datetime)
            return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == parse(str(event)) // 1000
        case _:
            return bool(value == event)


def assert_the_same_events(registry: SchemaRegistry, batch: pa.RecordBatch) -> None:
    lines = [json.loads(line) for line in EventWriter(registry.by_key).lines(batch)]
    events = read(written(registry, batch))
    columns = columns_of(registry.by_key(series_of(batch).schema_key))
    assert len(events) == len(lines)
    for event, line in zip(events, lines, strict=True):
        assert list(event) == [
            "uuid", "read_timestamp", "source_timestamp", "object", "read_method", "stream_name", "schema_key",
            "sort_keys", "source_metadata", "payload",
        ]  # fmt: skip
        for name in ("read_timestamp", "source_timestamp"):
            assert milliseconds(event.pop(name)) == parse(line.pop(name)) // 1_000_000
        payload, expected = event.pop("payload"), line.pop("payload")
        assert event == line
        assert list(event["source_metadata"]) == list(line["source_metadata"])
        assert list(payload) == [one.avro_name for one in columns]
        for one in columns:
            assert same(payload[one.avro_name], expected.get(one.name), one), one


@pytest.mark.long(but=12)
@pytest.mark.parametrize(("type_json", "texts"), EDGES, ids=lambda given: given if isinstance(given, str) else "")
def test_avro_and_json_lines_hold_the_same_values(type_json: str, texts: list[str]) -> None:
    columns = (column("Id", "INT64", 1, key=True), ColumnType("v", type_json, False, 2))
    absent = Mod('{"Id":"1"}', "{}", "{}")
    null = Mod('{"Id":"2"}', '{"v":null}', "{}")
    values = tuple(Mod('{"Id":"-300"}', f'{{"v":{text}}}', "{}") for text in texts)
    for mods in (values, (absent, *values, null), (absent, null)):
        assert_the_same_events(*built(record(column_types=columns, mods=mods)))


def test_minus_zero_keeps_its_sign() -> None:
    columns = (ColumnType("a", FLOAT64, False, 1), ColumnType("b", FLOAT32, False, 2))
    mods = tuple(Mod("{}", f'{{"a":{zero},"b":{zero}}}', "{}") for zero in ("-0", "-0.0", "-0e0"))
    for event in read(written(*built(record(column_types=columns, mods=mods)))):
        assert [math.copysign(1, event["payload"][name]) for name in "ab"] == [-1, -1]


def test_a_timestamp_is_truncated_to_microseconds() -> None:
    columns = (ColumnType("v", '{"code":"TIMESTAMP"}', False, 1),)
    mods = (Mod("{}", '{"v":"2026-01-02T03:04:05.123456999Z"}', "{}"),)
    (event,) = read(written(*built(record(column_types=columns, mods=mods))))
    assert event["payload"]["v"] == datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)


def test_a_timestamp_as_text_has_all_its_digits() -> None:
    columns = (ColumnType("v", '{"code":"TIMESTAMP"}', False, 1),)
    mods = (Mod("{}", '{"v":"2026-01-02T03:04:05.123456999Z"}', "{}"), Mod("{}", "{}", "{}"))
    registry, batch = built(record(column_types=columns, mods=mods))
    avro = Avro(registry.by_key, deflate=False, timestamps="text")
    rows = avro.encode(series_of(batch), batch)
    events = read(avro.header(series_of(batch), PATH) + avro.framed(rows, 0, 2, PATH))
    assert [event["payload"]["v"] for event in events] == ["2026-01-02T03:04:05.123456999Z", None]


integers = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(integers | st.integers(-70, 70)))
def test_a_varint_is_avros(numbers: list[int]) -> None:
    def plain(number: int) -> bytes:
        rest, out = (number << 1) ^ (number >> 63), b""
        while rest > 0x7F:
            out += bytes([rest & 0x7F | 0x80])
            rest >>= 7
        return out + bytes([rest])

    encoded = varints(np.array(numbers, np.int64), prefix=b"\x02").to_pylist()
    assert encoded == [b"\x02" + plain(number) for number in numbers]
    assert [varint(number) for number in numbers] == [plain(number) for number in numbers]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = texts.filter(lambda name: name not in ("", "Id"))
VALUES = {
    INT64: integers.map(str),
    FLOAT64: st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "Infinity", "-Infinity"]),
    '{"code":"NUMERIC"}': st.decimals(-(10**20), 10**20, places=9).map("{:f}".format),
    STRING: texts,
    BYTES: st.sampled_from(["", "AAEC", "/+8="]),
    '{"code":"BOOL"}': st.booleans(),
    '{"code":"DATE"}': st.dates().map(date.isoformat),
    JSON: st.sampled_from(["null", "1", '{"a": [1]}']),
    ARRAY_OF.format(INT64): st.lists(st.none() | integers.map(str), max_size=3),
    ARRAY_OF.format(STRING): st.lists(st.none() | texts, max_size=3),
}


@st.composite
def inserts(draw: st.DrawFn) -> DataChangeRecord:
    unique = draw(
        st.lists(names, unique_by=lambda name: "".join(c if c.isascii() and c.isalnum() else "_" for c in name))
    )
    kept = [name for name in unique if name[0].isalpha() and name.isascii()]
    types = [draw(st.sampled_from(sorted(VALUES))) for _ in kept]
    columns = (column("Id", "INT64", 1, key=True), *map(ColumnType, kept, types, [False] * len(kept), range(2, 99)))
    mods = []
    for number in range(draw(st.integers(1, 5))):
        row = {
            name: draw(st.none() | VALUES[kind]) for name, kind in zip(kept, types, strict=True) if draw(st.booleans())
        }
        mods.append(Mod(f'{{"Id":"{number}"}}', orjson.dumps(row).decode(), "{}"))
    tag = draw(texts)
    return record(
        column_types=columns, mods=tuple(mods), transaction_tag=tag, commit_timestamp=draw(st.integers(0, 2**62))
    )


@given(inserts())
def test_avro_and_json_lines_hold_the_same_events(change: DataChangeRecord) -> None:
    assert_the_same_events(*built(change))


def test_a_slice_of_a_batch_is_written_without_the_other_rows() -> None:
    mods = tuple(Mod(f'{{"Id":"{number}"}}', f'{{"Name":"{"n" * number}"}}', "{}") for number in range(50))
    registry, batch = built(record(mods=mods))
    assert_the_same_events(registry, batch.slice(17, 9))


def test_columns_of_any_name_have_a_valid_name_in_avro() -> None:
    named = {"1st": "_1st", "a-b": "a_b", "ünï": "_n_", "select": "select", "payload": "payload", 'quo"te': "quo_te"}
    columns = tuple(ColumnType(name, STRING, False, number) for number, name in enumerate(named))
    row = orjson.dumps({name: name for name in named}).decode()
    registry, batch = built(record(table_name="payload", column_types=columns, mods=(Mod("{}", row, "{}"),)))
    (event,) = read(written(registry, batch))
    assert event["payload"] == {avro: name for name, avro in named.items()}


def test_two_columns_of_one_name_are_rejected_in_one_line() -> None:
    columns = (ColumnType("a-b", STRING, False, 1), ColumnType("a_b", STRING, False, 2))
    registry, batch = built(record(column_types=columns, mods=(Mod("{}", "{}", "{}"),)))
    with pytest.raises(SinkError) as caught:
        written(registry, batch)
    assert str(caught.value).startswith("the columns a-b and a_b of table Singers would both be called a_b in Avro")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("type_json", "text"),
    [
        (INT64, '"secret"'),
        (INT64, '"9223372036854775808"'),
        ('{"code":"DATE"}', '"secret"'),
        ('{"code":"NUMERIC"}', '"0.1234567891"'),
        ('{"code":"TIMESTAMP"}', '"secret"'),
        (BYTES, '"secret!"'),
        (FLOAT64, '"secret"'),
        (STRING, '["secret"]'),
    ],
)
def test_an_error_about_an_invalid_value_does_not_contain_it(type_json: str, text: str) -> None:
    columns = (ColumnType("v", type_json, False, 1),)
    registry, batch = built(record(column_types=columns, mods=(Mod("{}", f'{{"v":{text}}}', "{}"),)))
    with pytest.raises(SinkError, match=r"^column v of table Singers .* and cannot be written as Avro\.") as caught:
        written(registry, batch)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_column_that_is_not_in_the_schema_is_an_error() -> None:
    schema = TableSchema.of("Singers", [column("Id", "INT64", 1, key=True)])
    _, batch = built(record())
    avro = Avro(lambda _: schema, deflate=False)
    with pytest.raises(SinkError, match="column Name, which the schema does not know"):
        avro.encode(series_of(batch), batch)


def test_the_bytes_depend_only_on_the_path_and_the_rows() -> None:
    registry, batch = built(record())
    assert written(registry, batch) == written(registry, batch)
    other = written(registry, batch, path="another")
    assert written(registry, batch)[-16:] != other[-16:]
    assert read(other) == read(written(registry, batch))


@pytest.mark.parametrize("deflate", [False, True])
def test_a_long_file_has_several_blocks(monkeypatch: pytest.MonkeyPatch, *, deflate: bool) -> None:
    monkeypatch.setattr(avro_module, "_BLOCK", 5000)
    mods = tuple(Mod(f'{{"Id":"{number}"}}', '{"Name":"n"}', "{}") for number in range(100))
    registry, batch = built(record(mods=mods))
    data = written(registry, batch, deflate=deflate)
    blocks = list(fastavro.block_reader(io.BytesIO(data)))
    assert len(blocks) > 5
    assert sum(block.num_records for block in blocks) == 100
    assert [event["payload"]["Id"] for event in read(data)] == list(range(100))
    assert fastavro.reader(io.BytesIO(data)).metadata["avro.codec"] == ("deflate" if deflate else "null")


def test_the_schema_is_datastreams() -> None:
    registry, batch = built(record(table_name="music.Songs"))
    schema = json.loads(fastavro.reader(io.BytesIO(written(registry, batch))).metadata["avro.schema"])
    types = {field["name"]: field["type"] for field in schema["fields"]}
    assert schema["name"] == "music_Songs"
    assert "namespace" not in schema
    assert types["read_timestamp"] == {"type": "long", "logicalType": "timestamp-millis"}
    assert types["sort_keys"] == {"type": "array", "items": ["string", "long"]}
    assert types["source_metadata"]["name"] == "source_metadata"
    assert types["payload"] == {
        "type": "record",
        "name": "payload",
        "fields": [
            {"name": "Id", "type": ["null", "long"], "default": None},
            {"name": "Name", "type": ["null", "string"], "default": None},
        ],
    }


def test_every_kind_is_tested() -> None:
    assert {SpannerType.parse(type_json).kind for type_json, _ in EDGES} == set(ColumnKind)


def test_an_event_without_its_metadata_is_rejected() -> None:
    registry, batch = built(record())
    without = batch.set_column(batch.schema.get_field_index("uuid"), "uuid", pa.nulls(1, pa.string()))
    with pytest.raises(SinkError, match="an event has no uuid"):
        written(registry, without)
