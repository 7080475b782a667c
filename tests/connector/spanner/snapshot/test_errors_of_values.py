"""No value of a row is in the error that it causes, nor in the traceback."""

import traceback
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.column_kinds import ColumnKind
from connector.core.records import ColumnType
from connector.errors import EventError, SpannerCdcError, StreamError
from connector.spanner.snapshot.reading import _Reading
from connector.spanner.snapshot.row_block import RowBlock
from tests.connector.spanner.snapshot.encoded import encoded
from tests.property.effort import effort
from tests.spark_sink.column_types import TYPE_OBJECTS

SECRET = "Xq7secret"
SOME = st.sampled_from(
    [
        SECRET,
        f"2024-01-0{SECRET}",
        f"2024-01-01T00:00:00.{SECRET}Z",
        f"99999-01-01T00:00:00{SECRET}",
        f"1e{SECRET}",
        f"{SECRET}==",
        f"12:{SECRET}",
        f"\ud7ff{SECRET}\x00",
    ]
)
VALUES = SOME | st.lists(SOME | st.none(), max_size=3) | st.lists(st.lists(SOME), max_size=2)
KINDS = st.sampled_from(list(ColumnKind)).map(lambda kind: TYPE_OBJECTS[kind])
TYPES = KINDS | KINDS.map(lambda one: f'{{"array_element_type":{one},"code":"ARRAY"}}')


def texts_of(call: Callable[[], object]) -> str:
    """The text printed of the error of a call, if it has one."""
    try:
        call()
    except SpannerCdcError as error:
        return "".join(traceback.format_exception(error)) + str(error) + repr(error)
    return ""


def block_of(type_json: str, values: list[bytes]) -> RowBlock:
    return RowBlock([ColumnType("c", type_json, is_primary_key=False, ordinal_position=1)], values)


def _failing(text: str) -> RowBlock:
    raise ValueError(text)


@effort(150)
@given(TYPES, st.lists(VALUES, min_size=1, max_size=3))
def test_values_of_another_type_are_not_in_the_error(type_json: str, values: list[object]) -> None:
    block = block_of(type_json, [encoded(value) for value in values])
    assert SECRET not in texts_of(block.typed)
    assert SECRET not in texts_of(lambda: block.payloads(["c"]))


@effort(150)
@given(TYPES, VALUES, st.data())
def test_values_that_are_damaged_are_not_in_the_error(type_json: str, value: object, data: st.DataObject) -> None:
    raw = bytearray(encoded(value))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    assert SECRET not in texts_of(block_of(type_json, [cut]).typed)
    assert SECRET not in texts_of(lambda: block_of(type_json, [cut]).payloads(["c"]))


@pytest.mark.parametrize("method", ["typed", "payloads"])
def test_the_error_has_no_cause_that_holds_a_value(method: str) -> None:
    block = block_of(TYPE_OBJECTS[ColumnKind.INT64], [b"\x1a\x7f" + SECRET.encode()])
    with pytest.raises(EventError) as caught:
        block.typed() if method == "typed" else block.payloads(["c"])
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_result_that_cannot_be_read_is_an_error_without_its_values() -> None:
    def broken() -> Iterator[RowBlock]:
        return map(_failing, [SECRET])

    reading = _Reading(cast("Any", None), "", cast("Any", None), "a partition")
    with pytest.raises(StreamError, match="a result of a partition cannot be read: ValueError") as caught:
        list(reading._made(broken()))
    assert SECRET not in texts_of(lambda: list(reading._made(broken())))
    assert caught.value.__cause__ is None
