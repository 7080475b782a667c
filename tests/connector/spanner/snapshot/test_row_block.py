"""Rows become the JSON of a change record, and columns of Arrow's types, whatever their values are."""

from collections.abc import Sequence

import orjson
import pyarrow as pa
import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import ListValue, Value
from hypothesis import given
from hypothesis import strategies as st

from connector.core.column_kinds import ColumnKind
from connector.core.records import ColumnType
from connector.errors import EventError
from connector.spanner.snapshot.arrow_types import ARROW_TYPES
from connector.spanner.snapshot.row_block import RowBlock
from tests.connector.spanner.snapshot.encoded import CASES, encoded
from tests.property.effort import effort
from tests.spark_sink.column_types import TYPE_OBJECTS

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
SCALARS = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = SCALARS | st.lists(SCALARS, max_size=5) | st.lists(st.lists(SCALARS, max_size=3), max_size=3)


def block_of(rows: Sequence[Sequence[object]], types: list[str]) -> RowBlock:
    columns = [ColumnType(f"c{n}", one, is_primary_key=False, ordinal_position=n) for n, one in enumerate(types)]
    return RowBlock(columns, [encoded(value) for row in rows for value in row])


def array_of(type_json: str) -> str:
    return f'{{"array_element_type":{type_json},"code":"ARRAY"}}'


def test_every_kind_of_column_has_an_arrow_type() -> None:
    assert set(ARROW_TYPES) == set(CASES) == set(ColumnKind)


@effort(80)
@given(st.data())
def test_payloads_are_the_json_of_the_values(data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 5))
    rows = data.draw(st.lists(st.lists(VALUES, min_size=width, max_size=width), min_size=1, max_size=8))
    block = block_of(rows, ['{"code":"STRING"}'] * width)
    names = data.draw(st.lists(st.integers(0, width - 1), unique=True).map(lambda some: [f"c{n}" for n in some]))
    assert [orjson.loads(text) for text in block.payloads(names).to_pylist()] == [
        {name: row[int(name[1:])] for name in names} for row in rows
    ]
    block.payloads(names).validate(full=True)


@pytest.mark.parametrize("kind", ColumnKind)
def test_values_of_every_kind_become_their_arrow_type(kind: ColumnKind) -> None:
    given_values, expected = zip(*CASES[kind], strict=True)
    rows = [[value] for value in (*given_values, None)]
    block = block_of(rows, [TYPE_OBJECTS[kind]])
    payloads = block.payloads(["c0"])
    found = block.typed()
    found.validate(full=True)
    assert repr(found.column(0).to_pylist()) == repr([*expected, None])
    assert repr([orjson.loads(text)["c0"] for text in payloads.to_pylist()]) == repr([*given_values, None])


@pytest.mark.parametrize("kind", ColumnKind)
def test_arrays_of_every_kind_keep_their_null_elements(kind: ColumnKind) -> None:
    given_values, expected = (list(some) for some in zip(*CASES[kind], strict=True))
    rows: list[list[object]] = [[[*given_values, None]], [None], [[]], [[given_values[-1]]]]
    block = block_of(rows, [array_of(TYPE_OBJECTS[kind])])
    found = block.typed()
    found.validate(full=True)
    assert repr(found.column(0).to_pylist()) == repr([[*expected, None], None, [], [expected[-1]]])
    assert repr([orjson.loads(text)["c0"] for text in block.payloads(["c0"]).to_pylist()]) == repr(
        [row[0] for row in rows]
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ColumnKind.INT64, "secret"),
        (ColumnKind.INT64, 1.0),
        (ColumnKind.BOOL, "true"),
        (ColumnKind.BYTES, "abc"),
        (ColumnKind.BYTES, "a*bc"),
        (ColumnKind.FLOAT64, "secret"),
        (ColumnKind.DATE, "secret"),
        (ColumnKind.TIMESTAMP, "secret"),
        (ColumnKind.NUMERIC, "secret"),
        (ColumnKind.STRING, ["secret"]),
    ],
)
def test_a_value_that_is_not_of_its_type_is_an_error_that_names_the_column_alone(
    kind: ColumnKind, value: object
) -> None:
    with pytest.raises(EventError, match="column c0") as caught:
        block_of([[value]], [TYPE_OBJECTS[kind]]).typed()
    assert "secret" not in str(caught.value)


def test_bytes_that_are_no_value_are_an_error() -> None:
    column = ColumnType("c", '{"code":"STRING"}', is_primary_key=False, ordinal_position=1)
    for broken in (b"", b"\x1a\x05ab", b"\x2a\x00", b"\x1a\x02\xff\xfe"):
        with pytest.raises(EventError):
            RowBlock([column], [broken]).payloads(["c"])


def test_huge_values_and_lists_of_huge_values_are_whole() -> None:
    huge = "x" * (3 * 1024 * 1024)
    block = block_of([[huge, [huge, "y"]]], ['{"code":"STRING"}', array_of('{"code":"STRING"}')])
    assert orjson.loads(block.payloads(["c1", "c0"])[0].as_py()) == {"c0": huge, "c1": [huge, "y"]}
    assert block.typed().to_pylist() == [{"c0": huge, "c1": [huge, "y"]}]


def test_an_unknown_column_is_a_key_error_and_no_column_an_empty_object() -> None:
    block = block_of([["a"], ["b"]], ['{"code":"STRING"}'])
    with pytest.raises(KeyError):
        block.payloads(["other"])
    assert block.payloads([]).equals(pa.array(["{}", "{}"]))


def test_unknown_fields_of_a_list_are_ignored() -> None:
    known: bytes = ParseDict(["a", "b"], ListValue()).SerializeToString()
    newer = known + b"\x10\x01"
    value = Value(list_value=ListValue()).SerializeToString()[:1] + bytes([len(newer)]) + newer
    column = ColumnType("c", array_of('{"code":"STRING"}'), is_primary_key=False, ordinal_position=1)
    assert RowBlock([column], [value, encoded(["c"])]).typed().column(0).to_pylist() == [["a", "b"], ["c"]]
