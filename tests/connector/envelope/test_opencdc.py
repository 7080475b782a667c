import json
import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.position import Position
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.schemas import SchemaRegistry
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.envelope.opencdc import EXACT, OpenCdcRecord, OpenCdcWriter
from connector.envelope.opencdc_protobuf import delimited
from connector.errors import EventError, SpannerCdcError
from tests.connector.builders import AT, column, record
from tests.connector.envelope.column_values import array_of, json_values, simple
from tests.connector.envelope.conduit import ConduitRecord, of_json, of_messages

SOURCE = Source("p", "i", "d", "s", "d")


def written(*records: DataChangeRecord) -> list[OpenCdcRecord]:
    registry = SchemaRegistry()
    batch = EnvelopeBuilder(SOURCE, stream_name=None, read_method="spanner-cdc").build(Changes.of(records), registry, 1)
    return list(OpenCdcWriter(registry.by_key).records(batch))


def one(**changed: Any) -> OpenCdcRecord:
    (found,) = written(record(**changed))
    return found


def mod(keys: str, new: str = "{}", old: str = "{}") -> tuple[Mod, ...]:
    return (Mod(keys, new, old),)


def value_of(type_json: str, text: str) -> Any:
    """The JSON of a record's value, given in Spanner's JSON."""
    types = (column("Id", "INT64", 1, key=True), ColumnType("v", type_json, False, 2))
    line = one(column_types=types, mods=mod('{"Id":"1"}', f'{{"v":{text}}}')).to_json()
    return json.loads(line)["payload"]["after"]["v"]


def messages(records: Iterable[OpenCdcRecord]) -> list[ConduitRecord]:
    return list(of_messages(b"".join(delimited(each) for each in records)))


def test_an_insert_is_a_create_with_the_new_values_after() -> None:
    found = json.loads(one().to_json())
    assert found["operation"] == "create"
    assert found["key"] == {"Id": 1}
    assert found["payload"] == {"before": None, "after": {"Id": 1, "Name": "a"}}


def test_an_update_has_the_captured_values_before_and_after() -> None:
    found = one(mod_type="UPDATE", mods=mod('{"Id":"1"}', '{"Name":"b"}', '{"Name":null}'))
    assert (found.operation, found.key) == ("update", {"Id": 1})
    assert (found.before, found.after) == ({"Id": 1, "Name": None}, {"Id": 1, "Name": "b"})


def test_an_update_without_old_values_has_null_before() -> None:
    found = one(mod_type="UPDATE", mods=mod('{"Id":"1"}', '{"Name":null}'))
    assert (found.before, found.after) == (None, {"Id": 1, "Name": None})


def test_a_delete_has_null_after() -> None:
    found = one(mod_type="DELETE", mods=mod('{"Id":"1"}', old='{"Name":"a"}'))
    assert (found.operation, found.key) == ("delete", {"Id": 1})
    assert (found.before, found.after) == ({"Id": 1, "Name": "a"}, None)


def test_a_delete_without_old_values_has_its_key() -> None:
    found = json.loads(one(mod_type="DELETE", mods=mod('{"Id":"1"}')).to_json())
    assert found["key"] == {"Id": 1}
    assert found["payload"] == {"before": None, "after": None}


def test_a_row_of_a_backfill_is_a_snapshot() -> None:
    registry = SchemaRegistry()
    batch = EnvelopeBuilder(SOURCE, stream_name=None, read_method="b").build(Changes.of([record()]), registry, 1)
    at = batch.schema.get_field_index("source_metadata")
    fields = list(batch.schema.field(at).type)
    arrays = [pa.array([True]) if field.name == "snapshot" else batch.column(at).field(field.name) for field in fields]
    batch = batch.set_column(at, batch.schema.field(at), pa.StructArray.from_arrays(arrays, fields=fields))
    (found,) = OpenCdcWriter(registry.by_key).records(batch)
    assert (found.operation, found.before, found.after) == ("snapshot", None, {"Id": 1, "Name": "a"})


def test_an_unknown_mod_type_raises_an_error_of_one_line() -> None:
    with pytest.raises(SpannerCdcError, match="no operation for mod type TRUNCATE"):
        one(mod_type="TRUNCATE")


def test_a_missing_column_is_absent_and_null_is_null() -> None:
    types = (column("Id", "INT64", 1, key=True), column("A", "INT64", 2), column("B", "JSON", 3))
    found = one(column_types=types, mods=mod('{"Id":"1"}', '{"A":null}'))
    assert found.after == {"Id": 1, "A": None}
    assert messages([found])[0].after == {"Id": 1.0, "A": None}


def test_a_key_of_several_columns_is_in_the_order_of_the_key() -> None:
    types = (column("B", "STRING", 2, key=True), column("A", "INT64", 1, key=True), column("C", ordinal=3))
    found = one(column_types=types, mods=mod('{"B":"b","A":"9007199254740993"}', '{"C":"c"}'))
    assert list(found.key.items()) == [("A", "9007199254740993"), ("B", "b")]


def test_metadata_is_text_with_the_names_of_opencdc_and_spanner() -> None:
    metadata = one(transaction_tag="tag", read_timestamp=AT + 1001).metadata
    expected = {
        "opencdc.version": "v1",
        "opencdc.createdAt": str(AT),
        "opencdc.readAt": str((AT + 1001) // 1000 * 1000),
        "opencdc.collection": "Singers",
        "spanner.stream_name": "projects/p/locations/global/streams/s",
        "spanner.read_method": "spanner-cdc",
        "spanner.commit_timestamp": "2026-01-02T03:04:05.123456789Z",
        "spanner.project_id": "p",
        "spanner.server_transaction_id": "tx",
        "spanner.transaction_tag": "tag",
        "spanner.mod_index": "0",
        "spanner.system_transaction": "false",
        "spanner.mod_type": "INSERT",
        "spanner.primary_keys": '["Id"]',
        "spanner.number_of_records_in_transaction": "1",
    }
    assert {name: metadata[name] for name in expected} == expected
    assert all(isinstance(text, str) for text in metadata.values())
    assert all(name.startswith(("opencdc.", "spanner.")) for name in metadata)


@pytest.mark.parametrize("type_json", ['{"code":"JSON"}', '{"code":"ARRAY","array_element_type":{"code":"JSON"}}'])
def test_a_lone_surrogate_in_json_is_written_as_its_escape(type_json: str) -> None:
    text = r'{"\udc00": ["a\ud83d", "\uD83D\uDE00 \\ud800"]}'
    types = (column("Id", "INT64", 1, key=True), ColumnType("v", type_json, False, 2))
    value = orjson.dumps({"v": [text] if "ARRAY" in type_json else text}).decode()
    found = one(column_types=types, mods=mod('{"Id":"1"}', value))
    expected = {r"\udc00": [r"a\ud83d", "\U0001f600 \\ud800"]}
    wanted = {"Id": 1, "v": [expected] if "ARRAY" in type_json else expected}
    assert orjson.loads(found.to_json())["payload"]["after"] == wanted
    assert messages([found])[0].after == wanted


def test_a_table_in_a_named_schema_is_a_collection_by_its_full_name() -> None:
    assert one(table_name="music.Singers").metadata["opencdc.collection"] == "music.Singers"


def test_each_mod_has_its_own_position() -> None:
    found = written(record(mods=mod('{"Id":"1"}') * 3))
    assert [Position.from_text(b64encode(each.position).decode()).mod_index for each in found] == [0, 1, 2]


@pytest.mark.parametrize(
    ("type_json", "spanner", "opencdc"),
    [
        (simple("BOOL"), "true", True),
        (simple("INT64"), '"42"', 42),
        (simple("INT64"), f'"{EXACT}"', EXACT),
        (simple("INT64"), f'"{-EXACT}"', -EXACT),
        (simple("INT64"), f'"{EXACT + 1}"', str(EXACT + 1)),
        (simple("INT64"), f'"{-EXACT - 1}"', str(-EXACT - 1)),
        (simple("INT64"), '"-9223372036854775808"', "-9223372036854775808"),
        (simple("INT64"), '"9223372036854775807"', "9223372036854775807"),
        ('{"code":"INT64","type_annotation":"PG_OID"}', '"4294967295"', 4294967295),
        (simple("FLOAT64"), "1.5", 1.5),
        (simple("FLOAT64"), "-0.0", -0.0),
        (simple("FLOAT64"), "1e300", 1e300),
        (simple("FLOAT64"), '"NaN"', "NaN"),
        (simple("FLOAT64"), '"Infinity"', "Infinity"),
        (simple("FLOAT64"), '"-Infinity"', "-Infinity"),
        (simple("FLOAT32"), "3.140000104904175", 3.140000104904175),
        (simple("NUMERIC"), '"-99999999999999999999999999999.999999999"', "-99999999999999999999999999999.999999999"),
        ('{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}', '"NaN"', "NaN"),
        (simple("STRING"), '"12"', "12"),
        (simple("STRING"), '""', ""),
        (simple("STRING"), '"\\u00e9\\n\\ud83d\\ude00"', "é\n\U0001f600"),
        (simple("UUID"), '"aa-bb"', "aa-bb"),
        (simple("BYTES"), '"AAEC"', "AAEC"),
        ('{"code":"PROTO","proto_type_fqn":"a.B"}', '"CgA="', "CgA="),
        ('{"code":"ENUM","proto_type_fqn":"a.C"}', '"3"', 3),
        (simple("DATE"), '"2026-01-02"', "2026-01-02"),
        (simple("TIMESTAMP"), '"2026-01-02T03:04:05.123456789Z"', "2026-01-02T03:04:05.123456789Z"),
        (simple("INTERVAL"), '"P1Y2M3DT4H5M6.5S"', "P1Y2M3DT4H5M6.5S"),
        (simple("JSON"), '"{\\"a\\":[1,null,{\\"b\\":\\"c\\"}]}"', {"a": [1, None, {"b": "c"}]}),
        (simple("JSON"), '"\\"text\\""', "text"),
        (simple("JSON"), '"null"', None),
        (simple("JSON"), '"{}"', {}),
        (simple("JSON"), f'"[{EXACT}, {EXACT + 1}]"', [EXACT, str(EXACT + 1)]),
        (simple("JSON"), '"12345678901234567890123"', "12345678901234567890123"),
        ('{"code":"JSON","type_annotation":"PG_JSONB"}', '"{\\"a\\": 1.10}"', {"a": 1.1}),
        (simple("JSON"), '"0.12345678901234567890"', "0.12345678901234567890"),
        (simple("JSON"), '"[1e400, -1e400, 1e-400]"', ["1e400", "-1e400", "1e-400"]),
        (simple("JSON"), '"1e-99999999999999999999"', "1e-99999999999999999999"),
        (array_of(simple("INT64")), '["1",null,"9007199254740993"]', [1, None, "9007199254740993"]),
        (array_of(simple("INT64")), "[]", []),
        (array_of(simple("STRING")), '["a",null]', ["a", None]),
        (array_of(simple("FLOAT64")), '[1.5,"NaN",null]', [1.5, "NaN", None]),
        (array_of(simple("JSON")), '["{\\"a\\":1}",null]', [{"a": 1}, None]),
        (simple("TYPE_OF_TOMORROW"), '{"x":["1",9007199254740993]}', {"x": ["1", "9007199254740993"]}),
        (array_of(simple("TYPE_OF_TOMORROW")), '["1",true]', ["1", True]),
        ('{"code":"STRUCT"}', '["1"]', ["1"]),
    ],
)
def test_a_value_is_converted_by_its_type_to_a_number_only_if_a_double_represents_it(
    type_json: str, spanner: str, opencdc: object
) -> None:
    found = value_of(type_json, spanner)
    assert found == opencdc
    assert type(found) is type(opencdc)


@pytest.mark.parametrize("code", ["BOOL", "INT64", "FLOAT64", "NUMERIC", "STRING", "BYTES", "DATE", "JSON", "TOMORROW"])
def test_null_is_null_in_every_type(code: str) -> None:
    assert value_of(simple(code), "null") is None
    assert value_of(array_of(simple(code)), "null") is None


@pytest.mark.parametrize("text", ["-0", "[0,-0]", "[-0,1.5]"])
def test_a_negative_zero_keeps_its_sign(text: str) -> None:
    kind = simple("FLOAT64")
    found = value_of(array_of(kind) if text.startswith("[") else kind, text)
    assert [str(value) for value in (found if isinstance(found, list) else [found]) if value == 0][-1] == "-0.0"


def test_a_number_without_a_fraction_may_be_larger_than_an_integer_beside_a_sign_of_zero() -> None:
    """As PostgreSQL's jsonb writes a float8; versions of orjson differ in the exponent's sign."""
    written = one(mods=mod('{"Id":"1"}', '{"F":100000000000000000000,"S":"lost 3-0, away","N":-12}')).to_json()
    assert re.search(rb'"F":1e\+?20[,}]', written)


def test_an_error_about_an_invalid_integer_does_not_contain_it() -> None:
    with pytest.raises(EventError, match="column Id: a value of an integer type is not an integer") as caught:
        one(mods=mod('{"Id":"secret"}'))
    assert "secret" not in str(caught.value)


def test_a_column_that_is_not_in_the_schema_is_kept() -> None:
    assert one(mods=mod('{"Id":"1"}', '{"X":"2"}')).after == {"Id": 1, "X": "2"}


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_reader_that_parses_numbers_as_doubles_gets_every_integer(number: int) -> None:
    found = of_json(one(mods=mod(f'{{"Id":"{number}"}}')).to_json()).key
    assert found is not None
    assert int(found["Id"]) == number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=12) | st.floats(allow_nan=False, allow_infinity=False))
def test_a_reader_that_parses_numbers_as_doubles_gets_every_number_in_json(number: Decimal | float) -> None:
    text = repr(number) if isinstance(number, float) else str(number)
    found = value_of(simple("JSON"), orjson.dumps(text).decode())
    assert Decimal(found if isinstance(found, str) else repr(float(found))) == Decimal(text)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5).filter(lambda name: name != "Id")
scalars: dict[str, st.SearchStrategy[Any]] = {
    "BOOL": st.booleans(),
    "INT64": st.integers(-(2**63), 2**63 - 1).map(str),
    "FLOAT64": st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "Infinity", "-Infinity"]),
    "NUMERIC": st.decimals(allow_nan=False, allow_infinity=False, places=9).map(str),
    "STRING": st.text(st.characters(codec="utf-8"), max_size=10),
    "BYTES": st.binary(max_size=10).map(lambda data: b64encode(data).decode()),
    "JSON": json_values.map(lambda value: orjson.dumps(value).decode()),
    "TOMORROW": json_values,
}


@st.composite
def changes(draw: st.DrawFn) -> DataChangeRecord:
    """A record of any operation, with columns of any types, of which some are captured."""
    types, values = [column("Id", "INT64", 1, key=True)], {}
    for number, name in enumerate(draw(st.lists(names, max_size=5, unique=True))):
        code = draw(st.sampled_from(sorted(scalars)))
        array = draw(st.booleans())
        value = st.none() | scalars[code]
        types.append(ColumnType(name, array_of(simple(code)) if array else simple(code), False, number + 2))
        values[name] = draw(st.none() | st.lists(value, max_size=3) if array else value)
    kept = draw(st.sets(st.sampled_from(sorted(values)))) if values else set()
    old = {name: values[name] for name in kept} if draw(st.booleans()) else {}
    mod_type = draw(st.sampled_from(["INSERT", "UPDATE", "DELETE"]))
    new = {} if mod_type == "DELETE" else values
    keys = orjson.dumps({"Id": str(draw(st.integers(-(2**63), 2**63 - 1)))}).decode()
    mods = mod(keys, orjson.dumps(new).decode(), orjson.dumps({} if mod_type == "INSERT" else old).decode())
    return record(mod_type=mod_type, column_types=tuple(types), mods=mods)


@given(st.lists(changes(), min_size=1, max_size=3))
def test_json_and_protobuf_have_the_same_content(some: list[DataChangeRecord]) -> None:
    records = [each for one in some for each in written(one)]
    lines = [each.to_json() for each in records]
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    assert [of_json(line) for line in lines] == messages(records)


def test_a_slice_of_the_rows_has_the_same_records() -> None:
    registry = SchemaRegistry()
    some = [record(record_sequence=f"{n:08d}", transaction_tag=str(n), mods=mod(f'{{"Id":"{n}"}}')) for n in range(5)]
    batch = EnvelopeBuilder(SOURCE, stream_name=None, read_method="r").build(Changes.of(some), registry, 1)
    writer = OpenCdcWriter(registry.by_key)
    assert list(writer.records(batch.slice(2, 2))) == list(writer.records(batch))[2:4]


def test_equal_records_have_equal_bytes() -> None:
    found = one()
    turned = replace(
        found, metadata=dict(reversed(found.metadata.items())), after=dict(reversed((found.after or {}).items()))
    )
    assert delimited(found) == delimited(turned)


def test_a_record_of_ten_megabytes_is_complete() -> None:
    found = one(mods=mod('{"Id":"1"}', f'{{"Name":"{"x" * 10_000_000}"}}'))
    (message,) = messages([found])
    assert message == of_json(found.to_json())
    assert len((message.after or {})["Name"]) == 10_000_000
