"""Rows after their changes, whatever order these come in, and how they differ from Spanner's."""

import tracemalloc
from random import Random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.config.replicas import PARTIAL
from connector.proof.verify.buckets import BUCKET_BYTES, MOST_BUCKETS, buckets_for
from connector.proof.verify.rows import (
    DELETE,
    INSERT,
    UPDATE,
    Columns,
    Key,
    MergedRows,
    RowChange,
    RowKind,
    Unsure,
    differences,
    key_of,
    parsed,
    rows_after,
)
from tests.property.effort import effort


def change(at: int, kind: str, key: int = 1, **columns: object) -> RowChange:
    return RowChange("Singers", key_of(["Id"], {"Id": key}), (at, 0, 0), kind, orjson.dumps({"Id": key, **columns}))


def rows(*payloads: Columns) -> dict[Key, Columns]:
    return {("Singers", key_of(["Id"], payload)): payload for payload in payloads}


@effort(300)
@given(
    st.lists(st.tuples(st.sampled_from([INSERT, UPDATE, DELETE]), st.integers(0, 2), st.integers(0, 9)), max_size=20),
    st.integers(0, 2**32),
)
def test_rows_are_those_after_the_last_change_whatever_order_the_changes_come_in(
    plan: list[tuple[str, int, int]], seed: int
) -> None:
    expected: dict[Key, Columns] = {}
    changes = []
    for at, (kind, key, value) in enumerate(plan):
        columns = {"Name" if value % 2 else "Age": value}
        row = "Singers", key_of(["Id"], {"Id": key})
        changes.append(change(at, kind, key, **columns))
        if kind == DELETE:
            expected.pop(row, None)
        elif kind == INSERT:
            expected[row] = {"Id": key, **columns}
        else:
            expected[row] = {**expected.get(row, {}), "Id": key, **columns}
    shuffled = changes + changes[: len(changes) // 2]  # some are delivered twice
    Random(seed).shuffle(shuffled)
    assert rows_after(shuffled) == expected


@effort(300)
@given(
    st.lists(st.tuples(st.sampled_from([INSERT, PARTIAL, DELETE]), st.sampled_from([None, 1, 2])), max_size=8),
    st.integers(0, 2**32),
)
def test_a_null_that_may_be_omitted_leaves_the_value_or_null_whatever_order_the_changes_come_in(
    plan: list[tuple[str, int | None]], seed: int
) -> None:
    possible: set[object] | None = None  # the values that the column may have; None: there is no row
    changes = []
    for at, (kind, held) in enumerate(plan):
        changes.append(change(at, kind, Age=held))
        if kind == DELETE:
            possible = None
        elif kind == INSERT or held is not None:
            possible = {held}
        else:
            possible = {None} | (possible or set())
    Random(seed).shuffle(changes)
    rows = rows_after(changes)
    if possible is None:
        assert rows == {}
    else:
        (columns,) = rows.values()
        found = columns.get("Age")
        assert possible == ({found.value, None} if isinstance(found, Unsure) else {found})


def test_a_row_that_changes_often_is_held_once() -> None:
    merged = MergedRows()
    tracemalloc.start()
    try:
        for at in range(2000):
            merged.add(change(at, UPDATE, Name=f"{at}" * 2500))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    assert merged.rows()["Singers", "[1]"]["Name"] == "1999" * 2500


def test_each_row_that_differs_is_named_once() -> None:
    source = rows({"Id": 1, "Name": "a"}, {"Id": 2, "Name": "b"}, {"Id": 3, "Name": None})
    replica = rows({"Id": 1, "Name": "z"}, {"Id": 3}, {"Id": 4, "Name": "d"})
    found = sorted(differences(source, replica), key=lambda one: one.key)
    assert [(one.kind, one.key, one.columns) for one in found] == [
        (RowKind.DIFFERENT, "[1]", ("Name",)),
        (RowKind.MISSING, "[2]", ()),
        (RowKind.EXTRA, "[4]", ()),
    ]


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (0, False), ("1", 1), (None, "null"), ([1], [True]), ({"a": 1}, {"a": 1.5})]
)
def test_values_of_different_kinds_differ(one: object, other: object) -> None:
    (difference,) = differences(rows({"Id": 1, "Value": one}), rows({"Id": 1, "Value": other}))
    assert difference.columns == ("Value",)


def test_the_order_of_an_objects_members_is_no_difference() -> None:
    one, other = parsed(b'{"Id":1,"J":{"a":1,"b":[2]}}'), parsed(b'{"J":{"b":[2],"a":1},"Id":1}')
    assert list(differences(rows(one), rows(other))) == []


def test_integers_beyond_64_bits_are_compared_by_all_their_digits() -> None:
    one, other = parsed(b'{"Id":1,"J":100000000000000000000001}'), parsed(b'{"Id":1,"J":100000000000000000000002}')
    assert len(list(differences(rows(one), rows(other)))) == 1
    assert list(differences(rows(one), rows(one))) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1.00000000000000000001", "1.00000000000000000002", False),
        ("1.50", "1.5", True),
        ("1e400", "1e401", False),
        ("7" * 5000, "7" * 4999 + "8", False),
        ("7" * 5000, "7" * 5000, True),
        ("-0.0", "0", True),
    ],
)
def test_numbers_in_documents_are_compared_by_all_their_digits(one: str, other: str, *, same: bool) -> None:
    source, replica = (rows(parsed(f'{{"Id":1,"J":[{text}]}}')) for text in (one, other))
    assert (list(differences(source, replica)) == []) is same


def test_a_column_that_spanner_no_longer_has_is_ignored() -> None:
    assert list(differences(rows({"Id": 1}), rows({"Id": 1, "Old": "x"}))) == []


def test_a_payload_that_is_no_object_is_refused_without_its_value() -> None:
    with pytest.raises(ValueError, match=r"^a payload is not a JSON object$"):
        parsed(b'"secret"')


@pytest.mark.parametrize(("size", "count"), [(0, 256), (BUCKET_BYTES * 256 + 1, 257), (10**15, MOST_BUCKETS)])
def test_buckets_are_of_about_equal_size_and_never_too_few_or_too_many(size: int, count: int) -> None:
    assert buckets_for(size) == count


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1.0, 1, True),
        (1e20, 10**20, True),
        ([1.0, None], [1, None], True),
        ({"a": 1.0}, {"a": 1}, True),
        (True, 1, False),
        ([1], [1, 2], False),
        (0.1, 0.2, False),
        ("1", 1, False),
        (None, 0, False),
    ],
)
def test_a_number_is_the_same_however_it_is_written(one: object, other: object, same: bool) -> None:
    key = ("t", "[1]")
    found = list(differences({key: {"a": one}}, {key: {"a": other}}))
    assert (found == []) is same


def test_a_whole_number_in_a_key_is_the_same_however_it_is_written() -> None:
    assert key_of(["k"], {"k": 1.0}) == key_of(["k"], {"k": 1})
