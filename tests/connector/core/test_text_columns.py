"""A text of a column equals the text of the value alone."""

from itertools import product
from uuid import UUID

import numpy as np
import orjson
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from connector.core.text_columns import change_sequence_numbers, is_empty, rfc3339_texts, splice, uuid_texts
from connector.core.timestamps import SECOND, format_rfc3339, parse
from tests.property.effort import effort

SMALLEST, LARGEST = -(2**63), 2**63 - 1
nanoseconds = st.integers(0, parse("2262-01-01T00:00:00Z") - 1)


def of_digits(nanos: int, digits: int) -> int:
    """The timestamp with this many digits after the second; the others are zero."""
    return nanos - nanos % int(f"1{'0' * (9 - digits)}")


@effort(100)
@given(st.lists(nanoseconds, max_size=12), st.integers(0, 9))
def test_timestamps_of_one_precision_are_written_as_one_by_one(some: list[int], digits: int) -> None:
    times = [of_digits(nanos, digits) for nanos in some]
    assert rfc3339_texts(np.array(times, np.int64)).to_pylist() == [format_rfc3339(time) for time in times]


@effort(100)
@given(st.lists(st.builds(of_digits, nanoseconds, st.integers(0, 9)) | st.integers(SMALLEST, LARGEST), max_size=12))
def test_timestamps_of_any_precision_and_year_are_written_as_one_by_one(times: list[int]) -> None:
    assert rfc3339_texts(np.array(times, np.int64)).to_pylist() == [format_rfc3339(time) for time in times]


@effort(100)
@given(nanoseconds, st.lists(st.integers(-2, 2), min_size=1, max_size=9))
def test_timestamps_around_a_full_second_are_written_as_one_by_one(timestamp: int, steps: list[int]) -> None:
    times = [max(timestamp - timestamp % SECOND + step, 0) for step in steps]
    assert rfc3339_texts(np.array(times, np.int64)).to_pylist() == [format_rfc3339(time) for time in times]


@effort(100)
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=9))
def test_uuids_are_written_as_the_standard_library_writes_them(halves: list[tuple[int, int]]) -> None:
    high, low = (np.array([pair[side] for pair in halves], np.uint64) for side in (0, 1))
    assert uuid_texts(high, low).to_pylist() == [str(UUID(int=(one << 64) | other)) for one, other in halves]


@effort(100)
@given(st.lists(st.tuples(*[st.integers(0, LARGEST)] * 3), max_size=9))
def test_change_sequence_numbers_are_three_of_sixteen_hex_digits(some: list[tuple[int, int, int]]) -> None:
    columns = [np.array([row[at] for row in some], np.int64) for at in range(3)]
    wanted = [f"{time:016X}/{sequence:016X}/{index:016X}" for time, sequence, index in some]
    assert change_sequence_numbers(*columns).to_pylist() == wanted


SPACE = ("", " ", "\n", "\t\r\n ")
EMPTY = tuple("{" + space + "}" for space in SPACE)
FULL = tuple(
    "{" + space + members + space + "}"
    for space, members in product(SPACE, ('"a":1', '"ä" : "}{"', '"🎸":{},"b":[{}]', '"":"{}"', '"n":null'))
)
objects = st.sampled_from(EMPTY) | st.sampled_from(FULL)
columns_of_objects = st.lists(objects, max_size=9) | st.lists(st.sampled_from(EMPTY), max_size=4)
pairs_of_objects = st.lists(st.tuples(objects, objects), max_size=9) | st.lists(
    st.tuples(st.sampled_from(FULL), st.sampled_from(FULL)), max_size=4
)


def sliced(texts: list[str]) -> pa.Array:
    """The texts as a slice of a longer column."""
    return pa.array(['{"another":1}', "{}", *texts, '{"one":2}']).slice(2, len(texts))


@effort(100)
@given(columns_of_objects)
def test_an_object_is_empty_if_it_has_no_members(texts: list[str]) -> None:
    wanted = [not orjson.loads(text) for text in texts]
    assert is_empty(pa.array(texts, pa.string())).to_pylist() == is_empty(sliced(texts)).to_pylist() == wanted


def spliced(keys: str, values: str) -> str:
    if keys in EMPTY:
        return keys if values in EMPTY else values
    return keys if values in EMPTY else f"{keys[:-1]},{values[1:]}"


@effort(100)
@given(pairs_of_objects)
def test_columns_of_objects_are_spliced_as_one_by_one(pairs: list[tuple[str, str]]) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    wanted = [spliced(*pair) for pair in pairs]
    assert splice(pa.array(keys, pa.string()), pa.array(values, pa.string())).to_pylist() == wanted
    assert splice(sliced(keys), sliced(values)).to_pylist() == wanted
    for whole, key, value in zip(wanted, keys, values, strict=True):
        assert orjson.loads(whole) == orjson.loads(key) | orjson.loads(value)
