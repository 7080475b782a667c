"""Rows of strings of any length are known by their frames, up to the longest that is looked at."""

from typing import Any

import pytest

from connector.core.dialects import GOOGLESQL, IMMUTABLE
from connector.decoding.googlesql import GooglesqlColumns
from connector.decoding.walk import walk
from tests.property.decoding.change_rows import AT, DataChange, googlesql, value, written
from tests.property.decoding.framed import message
from tests.property.decoding.two_ways import records

READ = 1_790_000_000_123_456_789
TAG, MODS = 11, 6
"""Numbers of fields."""

LONGEST = (1 << 21) - 8
"""The shortest that is not looked at."""

around = [
    border + more
    for border, before, behind in ((1 << 7, 30, 3), (1 << 14, 20, 3), (1 << 15, 20, 3), (LONGEST, 40, 1))
    for more in range(-before, behind)
]


def row(at: int) -> list[Any]:
    record = DataChange(
        commit_timestamp=written(AT + at, 9, "Z"),
        record_sequence="00000000",
        server_transaction_id="a",
        is_last_record_in_transaction_in_partition=True,
        shape=("Singers", [("Id", '{"code":"INT64"}', True, 1)]),
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
    """A row's only record, as the list of its fields."""
    found: list[Any] = of[0][0][0]
    return found


def are_the_same_in_both_ways(rows: list[list[Any]]) -> bool:
    """Whether the fast way knows the rows; it gives what the walk gives."""
    found = GooglesqlColumns()(b"".join(message([one]) for one in rows), READ)
    if found is None:
        return False
    wanted = [record for one in rows for record in walk(GOOGLESQL, IMMUTABLE)(value(one), READ)]
    assert records([found]) == records(wanted)
    return True


@pytest.mark.parametrize("length", around)
def test_a_field_of_any_length_is_found_between_its_neighbours(length: int) -> None:
    rows = [row(number) for number in range(3)]
    record_of(rows[1])[TAG] = "x" * length
    assert are_the_same_in_both_ways(rows) == (length < LONGEST)


@pytest.mark.parametrize("length", around)
def test_a_payload_of_any_length_is_found_between_its_neighbours(length: int) -> None:
    rows = [row(number) for number in range(3)]
    record_of(rows[1])[MODS][0][1] = '{"n":"' + "x" * (length - 8) + '"}'
    known = are_the_same_in_both_ways(rows)
    assert known or length > LONGEST - 100, "what is around a payload has to have room, too"


@pytest.mark.parametrize("text", ["é" * 40, "٣" * 60, "\u2028" * 6000])
def test_texts_are_as_long_as_their_bytes(text: str) -> None:
    rows = [row(number) for number in range(3)]
    record_of(rows[0])[TAG] = text
    record_of(rows[2])[MODS][1][0] = '{"n":"' + text + '"}'
    assert are_the_same_in_both_ways(rows)


def test_a_text_that_is_not_utf8_is_left_to_the_walk() -> None:
    rows = b"".join(message([row(number)]) for number in range(3))
    assert GooglesqlColumns()(rows, READ) is not None
    for text in (b"app=x", b'{"n":7}', b"Singers", b"INSERT"):
        broken = b"\xff" + text[1:-1] + b"}" if text[:1] == b"{" else b"\xff" + text[1:]
        assert GooglesqlColumns()(rows.replace(text, broken), READ) is None
        assert GooglesqlColumns()(rows.replace(text, broken, 1), READ) is None


def test_a_payload_that_is_not_utf8_within_its_braces_is_left_to_the_walk() -> None:
    rows = b"".join(message([row(number)]) for number in range(3))
    assert GooglesqlColumns()(rows.replace(b'{"n":7}', b'{"\xff":7}', 1), READ) is None
