"""Rows with strings of any length are recognized by their frames, up to a maximum length."""

from typing import Any

import pytest

from connector.core.dialects import GOOGLESQL, IMMUTABLE
from connector.spanner.decoding.decoder import walk
from connector.spanner.decoding.googlesql import googlesql_columns
from tests.property.decoding.change_rows import AT, DataChange, googlesql, value, written
from tests.property.decoding.framed import message
from tests.property.decoding.two_ways import records

READ = 1_790_000_000_123_456_789
TAG, MODS = 11, 6
"""Indexes of fields."""

LONGEST = (1 << 21) - 8
"""The shortest length that is not recognized."""

around = [
    border + more
    for border, before, after in ((1 << 7, 30, 3), (1 << 14, 20, 3), (1 << 15, 20, 3), (LONGEST, 40, 1))
    for more in range(-before, after)
]


def row(at: int) -> list[Any]:
    record = DataChange(
        commit_timestamp=written(AT + at, 9, "Z"),
        record_sequence="00000000",
        server_transaction_id="a",
        is_last_record_in_transaction_in_partition=True,
        table=("Singers", [("Id", '{"code":"INT64"}', True, 1)]),
        mods=[('{"Id":"1"}', '{"n":7}', "{}"), ('{"Id":"2"}', "{}", "{}")],
        mod_type="INSERT",
        value_capture_type="NEW_ROW",
        number_of_records_in_transaction=1,
        number_of_partitions_in_transaction=1,
        transaction_tag="app=x",
        is_system_transaction=False,
    )
    return [googlesql(record)]


def record_of(of: list[Any]) -> list[Any]:
    """Returns a row's only record, as the list of its fields."""
    found: list[Any] = of[0][0][0]
    return found


def are_columns(rows: list[list[Any]]) -> bool:
    """True if the column decoder accepts the rows; fails if its records are not those of the row decoder."""
    found = googlesql_columns(b"".join(message([one]) for one in rows), READ)
    if found is None:
        return False
    wanted = [record for one in rows for record in walk(GOOGLESQL, IMMUTABLE)(value(one), READ)]
    assert records([found]) == records(wanted)
    return True


@pytest.mark.parametrize("length", around)
def test_a_field_of_any_length_is_found_between_its_neighbours(length: int) -> None:
    rows = [row(number) for number in range(3)]
    record_of(rows[1])[TAG] = "x" * length
    assert are_columns(rows) == (length < LONGEST)


@pytest.mark.parametrize("length", around)
def test_a_payload_of_any_length_is_found_between_its_neighbours(length: int) -> None:
    rows = [row(number) for number in range(3)]
    record_of(rows[1])[MODS][0][1] = '{"n":"' + "x" * (length - 8) + '"}'
    known = are_columns(rows)
    assert known or length > LONGEST - 100, "only the bytes around a payload may exceed the maximum"


@pytest.mark.parametrize("text", ["é" * 40, "٣" * 60, "\u2028" * 6000])
def test_the_length_of_a_text_is_that_of_its_bytes(text: str) -> None:
    rows = [row(number) for number in range(3)]
    record_of(rows[0])[TAG] = text
    record_of(rows[2])[MODS][1][0] = '{"n":"' + text + '"}'
    assert are_columns(rows)


def test_a_text_that_is_not_utf8_is_left_to_the_row_decoder() -> None:
    rows = b"".join(message([row(number)]) for number in range(3))
    assert googlesql_columns(rows, READ) is not None
    for text in (b"app=x", b'{"n":7}', b"Singers", b"INSERT"):
        broken = b"\xff" + text[1:-1] + b"}" if text[:1] == b"{" else b"\xff" + text[1:]
        assert googlesql_columns(rows.replace(text, broken), READ) is None
        assert googlesql_columns(rows.replace(text, broken, 1), READ) is None


def test_a_payload_that_is_not_utf8_within_its_braces_is_left_to_the_row_decoder() -> None:
    rows = b"".join(message([row(number)]) for number in range(3))
    assert googlesql_columns(rows.replace(b'{"n":7}', b'{"\xff":7}', 1), READ) is None
