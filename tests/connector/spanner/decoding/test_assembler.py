"""Whole columns of fields are read with the same result as each field alone."""

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connector.core.records import ColumnType
from connector.core.timestamps import format_rfc3339, parse
from connector.spanner.decoding.assembler import Fields, _schema, assembled, timestamps
from connector.spanner.decoding.googlesql import is_known
from emulator.scripted.row_types import metadata
from tests.property.decoding.row_types import METADATA, other_row_types
from tests.property.effort import effort

LARGEST = 2**63 - 1
FIRST, LAST = parse("0001-01-01T00:00:00Z"), parse("9999-12-31T23:59:59.999999999Z")


def written(nanos: int, digits: int, zone: str = "Z") -> str:
    """Formats a timestamp with so many digits of its second."""
    fraction = f"{nanos % 10**9:09}"[:digits]
    return format_rfc3339(nanos)[:19] + (f".{fraction}" if fraction else "") + zone


def outcome(texts: list[str]) -> list[int] | None:
    """Returns the timestamps read one by one, or None if one is not valid or does not fit in 64 bits."""
    try:
        found = [parse(text) for text in texts]
    except ValueError:
        return None
    return found if all(-LARGEST <= one <= LARGEST for one in found) else None


def check(texts: list[str]) -> None:
    wanted = outcome(texts)
    if wanted is None:
        with pytest.raises((ValueError, OverflowError)):
            timestamps(texts)
    else:
        assert timestamps(texts).tolist() == wanted


instants = st.integers(0, LARGEST) | st.integers(1_790_000_000 * 10**9, 1_790_000_002 * 10**9)
digits = st.integers(0, 9)
zones = st.sampled_from(("Z", "z", "+00:00", "-07:30", "+0530", "+01", ""))
odd = st.sampled_from((*"0059:;/-+.,TtZz x_", "٣", "é", "\0", ""))


@effort(200)
@given(st.lists(instants, min_size=1, max_size=12), digits, zones)
def test_timestamps_of_one_precision_are_read_as_one_by_one(some: list[int], precision: int, zone: str) -> None:
    check([written(nanos, precision, zone) for nanos in some])


@effort(200)
@given(st.lists(st.builds(written, instants, digits, zones), min_size=1, max_size=6))
def test_timestamps_of_any_format_are_read_or_rejected_as_one_by_one(texts: list[str]) -> None:
    check(texts)


@effort(200)
@given(
    st.lists(instants, min_size=1, max_size=4), digits, zones, st.integers(0, 3), st.integers(0, 36), odd, st.booleans()
)
def test_a_wrong_character_is_noticed_in_any_place(
    some: list[int], precision: int, zone: str, which: int, at: int, character: str, replaces: bool
) -> None:
    texts = [written(nanos, precision, zone) for nanos in some]
    text = texts[which % len(texts)]
    texts[which % len(texts)] = text[:at] + character + text[at + replaces :]
    check(texts)


@effort(200)
@given(st.lists(st.integers(FIRST, LAST), min_size=1, max_size=4), digits, zones)
@example([LARGEST, LAST], 9, "Z")
@example([-LARGEST, -LARGEST - 1, FIRST], 9, "Z")
@example([LARGEST, LARGEST - 1], 9, "-01")
@example([LARGEST + 1, LARGEST], 9, "+01")
def test_a_timestamp_beyond_64_bits_is_rejected(some: list[int], precision: int, zone: str) -> None:
    check([written(nanos, precision, zone) for nanos in some])


def test_texts_whose_total_length_is_that_of_timestamps_are_rejected() -> None:
    text = "2026-01-02T03:04:05.123456789Z"
    check([text[:-1], text + "Z"])
    check([text * 2, ""])
    check([text, text.replace("2026", "é026")[:-1]])


def fields(count: int) -> Fields[bytes]:
    return Fields(
        commit_timestamp=np.arange(count),
        record_sequence=["1"] * count,
        server_transaction_id=["tx"] * count,
        is_last_record_in_transaction_in_partition=[True] * count,
        table_name=[f"T{number}" for number in range(count)],
        column_types=[b"%d" % number for number in range(count)],
        mod_counts=np.zeros(count, np.int64),
        payloads=pa.array([], pa.string()),
        mod_type=["INSERT"] * count,
        value_capture_type=["NEW_ROW"] * count,
        number_of_records_in_transaction=[1] * count,
        number_of_partitions_in_transaction=[1] * count,
        transaction_tag=[""] * count,
        is_system_transaction=[False] * count,
    )


def test_column_types_are_read_once_until_the_cache_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector.spanner.decoding.assembler._schema", lru_cache(3)(_schema.__wrapped__))
    read: list[bytes] = []

    def column_types(raw: bytes) -> tuple[ColumnType, ...]:
        read.append(raw)
        return (ColumnType(raw.decode(), "{}", False, 1),)

    for count in (1, 2, 3, 5, 5):
        changes = assembled(fields(count), 7, column_types)
        assert changes is not None
        wanted = [(f"T{number}", f"{number}") for number in range(count)]
        assert [(one.table_name, one.column_types[0].name) for one in changes.records()] == wanted
    assert read[:3] == [b"0", b"1", b"2"]


def test_only_the_googlesql_row_type_of_the_immutable_mode_is_known() -> None:
    assert is_known(METADATA["googlesql"])
    assert is_known(metadata("googlesql", "IMMUTABLE_KEY_RANGE", "Everything"))
    assert not is_known(metadata("googlesql", "MUTABLE_KEY_RANGE", "Everything"))
    assert not is_known(metadata("postgresql", "IMMUTABLE_KEY_RANGE", "Everything"))
    assert not is_known(None)
    assert not is_known(b"")


def test_a_row_type_that_differs_anywhere_is_not_known() -> None:
    others = list(other_row_types())
    assert len(others) == len(set(others)) > 100
    assert not [other for other in others if is_known(other)]
