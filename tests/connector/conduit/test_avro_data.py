"""Avro data of rows, as fastavro reads it: another implementation of the format."""

import io
import json
import math
import struct
from typing import Any

import fastavro
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.conduit.avro_data import AvroLayout, structured
from connector.core.column_kinds import CATALOGUE, ColumnKind, SpannerType
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.errors import EventError
from tests.connector.builders import column
from tests.connector.envelope.column_values import array_of, json_values, simple

UNKNOWN = '{"code":"NEWER"}'


def table(*types: str, name: str = "Singers") -> TableSchema:
    """A table with a key and columns of these types."""
    columns = [ColumnType(f"c{at}", text, False, at + 2) for at, text in enumerate(types)]
    return TableSchema.of(name, [column("Id", "INT64", 1, key=True), *columns])


def read(layout: AvroLayout, data: bytes | None) -> Any:
    """Decodes a row; every byte must be read."""
    assert data is not None
    stream = io.BytesIO(data)
    row = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(layout.schema)), None)
    assert stream.read() == b""
    return row


def carried(type_json: str, value: object) -> Any:
    """The value of a column as it is read."""
    layout = AvroLayout.of(table(type_json), ["c0"])
    return read(layout, layout.encode({"c0": value}))["c0"]


def field_type(type_json: str) -> object:
    (field,) = json.loads(AvroLayout.of(table(type_json), ["c0"]).schema)["fields"]
    assert field["default"] is None
    null, *types = field["type"]
    assert null == "null"
    return types[0] if len(types) == 1 else types


def test_a_schema_has_the_columns_of_a_row_in_the_tables_order() -> None:
    schema = table(simple("STRING"), simple("BYTES"), name="sales.Orders")
    found = json.loads(AvroLayout.of(schema, ["c1", "Id"]).schema)
    assert (found["type"], found["name"]) == ("record", "sales_Orders")
    assert [field["name"] for field in found["fields"]] == ["Id", "c1"]
    assert AvroLayout.of(schema, ["Id", "c1"]).schema == AvroLayout.of(schema, ["c1", "Id"]).schema


def test_an_absent_column_is_absent_and_null_is_null() -> None:
    layout = AvroLayout.of(table(simple("STRING"), simple("STRING")), ["Id", "c1"])
    assert read(layout, layout.encode({"Id": "1", "c1": None})) == {"Id": 1, "c1": None}


@pytest.mark.parametrize(
    ("type_json", "avro", "value", "expected"),
    [
        (simple("BOOL"), "boolean", True, True),
        (simple("INT64"), "long", "9223372036854775807", 2**63 - 1),
        (simple("INT64"), "long", "-9223372036854775808", -(2**63)),
        (simple("ENUM"), "long", "3", 3),
        (simple("FLOAT64"), ["double", "string"], 0.1, 0.1),
        (simple("FLOAT64"), ["double", "string"], 7, 7.0),
        (simple("FLOAT64"), ["double", "string"], "NaN", "NaN"),
        (simple("FLOAT32"), ["float", "string"], 1.5, 1.5),
        (simple("FLOAT32"), ["float", "string"], "-Infinity", "-Infinity"),
        (simple("NUMERIC"), "string", "1.000000001", "1.000000001"),
        (simple("STRING"), "string", "ü\x00", "ü\x00"),
        (simple("BYTES"), "bytes", "AP8=", b"\x00\xff"),
        (simple("PROTO"), "bytes", "", b""),
        (simple("DATE"), "string", "0001-01-01", "0001-01-01"),
        (simple("TIMESTAMP"), "string", "2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123456789Z"),
        (simple("JSON"), "string", '{"a":1.00}', '{"a":1.00}'),
        (simple("UUID"), "string", "8a5e", "8a5e"),
        (simple("INTERVAL"), "string", "P1D", "P1D"),
        (UNKNOWN, "string", {"a": [1, None]}, '{"a":[1,null]}'),
        (UNKNOWN, "string", "text", "text"),
        (
            array_of(simple("INT64")),
            {"type": "array", "items": ["null", "long"]},
            ["1", None, "9007199254740993"],
            [1, None, 2**53 + 1],
        ),
        (array_of(simple("STRING")), {"type": "array", "items": ["null", "string"]}, [None], [None]),
        (
            array_of(simple("FLOAT64")),
            {"type": "array", "items": ["null", "double", "string"]},
            [0.5, "Infinity", None],
            [0.5, "Infinity", None],
        ),
        (array_of(simple("BYTES")), {"type": "array", "items": ["null", "bytes"]}, ["AA=="], [b"\x00"]),
    ],
)
def test_a_value_keeps_every_digit_and_every_byte(type_json: str, avro: object, value: object, expected: Any) -> None:
    assert field_type(type_json) == avro
    assert carried(type_json, value) == expected
    assert type(carried(type_json, value)) is type(expected)
    assert carried(type_json, None) is None


def test_every_type_of_spanner_has_a_type_in_avro() -> None:
    for entry in CATALOGUE:
        text = orjson.dumps(entry.type_object).decode()
        for type_json in (text, array_of(text)):
            assert field_type(type_json)
            assert carried(type_json, None) is None
    assert {SpannerType.parse(orjson.dumps(entry.type_object).decode()).kind for entry in CATALOGUE} == {
        *ColumnKind
    } - {ColumnKind.UNKNOWN}


ROWS = st.fixed_dictionaries(
    {
        "Id": st.integers(-(2**63), 2**63 - 1),
        "c0": st.none() | st.text(),
        "c1": st.none() | st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1),
        "c2": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "c3": st.none() | st.booleans(),
        "c4": json_values,
        "c5": st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32),
    }
)


@given(ROWS)
def test_any_row_is_read_as_it_was(row: dict[str, Any]) -> None:
    types = (
        simple("STRING"),
        array_of(simple("INT64")),
        simple("FLOAT64"),
        simple("BOOL"),
        simple("JSON"),
        simple("FLOAT32"),
    )
    layout = AvroLayout.of(table(*types), list(row))
    numbers = row["c1"] and [None if item is None else str(item) for item in row["c1"]]
    text = None if row["c4"] is None else orjson.dumps(row["c4"]).decode()
    found = read(layout, layout.encode({**row, "Id": str(row["Id"]), "c1": numbers, "c4": text}))
    assert found == {**row, "c4": text}
    if row["c2"] is not None:
        assert struct.pack("d", found["c2"]) == struct.pack("d", row["c2"])
        assert math.copysign(1, found["c2"]) == math.copysign(1, row["c2"])


@pytest.mark.parametrize("name", ["string", "long", "null"])
def test_a_table_with_the_name_of_a_type_of_avro_has_another_name_there(name: str) -> None:
    """Registries that read schemas as Avro's Java library does reject such a record."""
    assert json.loads(AvroLayout.of(table(name=name), ["Id"]).schema)["name"] == f"{name}_"


def test_a_row_fits_if_it_has_the_columns_and_no_empty_array() -> None:
    layout = AvroLayout.of(table(array_of(simple("STRING")), simple("STRING")), ["Id", "c0"])
    assert layout.encode({"c0": None, "Id": "1"}) == layout.encode({"Id": "1", "c0": None})
    assert layout.encode({"Id": "1", "c0": [None]}) is not None
    for row in ({"Id": "1", "c0": []}, {"Id": "1"}, {"Id": "1", "c1": "x"}, {"Id": "1", "c0": None, "c1": "x"}):
        assert layout.encode(row) is None


@pytest.mark.parametrize(
    ("type_json", "value", "expected"),
    [
        (simple("INT64"), "5", 5),
        (simple("JSON"), '{"a":1.00}', '{"a":1.00}'),
        (array_of(simple("JSON")), ["1.00", None], ["1.00", None]),
        (UNKNOWN, {"a": 1}, '{"a":1}'),
        (array_of(UNKNOWN), [{"a": 1}, "b"], ['{"a":1}', "b"]),
        (array_of(simple("INT64")), [], []),
    ],
)
def test_a_row_that_does_not_fit_has_the_texts_of_its_json_too(type_json: str, value: object, expected: object) -> None:
    assert structured(type_json)(value) == expected
    if value:
        assert carried(type_json, value) == expected


@pytest.mark.parametrize(
    ("type_json", "value"),
    [
        (simple("INT64"), "secret"),
        (simple("INT64"), "9223372036854775808"),
        (simple("INT64"), 1.5),
        (simple("INT64"), True),
        (simple("BOOL"), "true"),
        (simple("FLOAT32"), 1e300),
        (simple("FLOAT64"), ["secret"]),
        (simple("STRING"), 1),
        (simple("BYTES"), "secret!"),
        (simple("BYTES"), "ü"),
        (simple("BYTES"), 5),
        (array_of(simple("INT64")), "1"),
        (array_of(simple("INT64")), ["secret"]),
    ],
)
def test_a_value_of_another_type_is_an_error_that_names_the_column_and_not_the_value(
    type_json: str, value: object
) -> None:
    with pytest.raises(EventError) as caught:
        carried(type_json, value)
    assert str(caught.value) == "column c0: a value does not match its type"


def test_a_column_whose_name_is_not_one_in_avro_is_an_error_with_what_helps() -> None:
    with pytest.raises(EventError, match="column order-id: its name is not one in Avro") as caught:
        AvroLayout.of(table(), ["Id", "order-id"])
    assert "sdk.schema.extract.payload.enabled" in caught.value.hint
