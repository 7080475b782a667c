"""The column decoders give the same records as the row decoders, for any rows and any framing.

For a campaign: ``PROPERTY_EXAMPLES=10000 pytest --run-long tests/property/decoding/test_decoders.py``.
"""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.dialects import GOOGLESQL, IMMUTABLE
from connector.spanner.decoding.decoder import FEW, Decoder, walk
from connector.spanner.decoding.googlesql import googlesql_columns
from tests.property.decoding.change_rows import (
    ANY,
    STYLES,
    TABLES,
    TYPICAL,
    Change,
    Children,
    DataChange,
    Heartbeat,
    Node,
    Spread,
    Style,
    changed,
    changes,
    googlesql,
    places,
    postgresql,
    text,
)
from tests.property.decoding.framed import cuts, framed, lists, message
from tests.property.decoding.row_types import other_row_types
from tests.property.decoding.two_ways import SIDES, Side, both_dialects, check, fast_items, outcome, records
from tests.property.effort import SHARE, effort

FEWS = (0, 2000, FEW)
"""Bytes of rows up to which the row decoder is used: none, few, and the default."""

Oddity = Callable[[st.DrawFn, list[Any]], None]


@st.composite
def rows(draw: st.DrawFn, side: Side, some: list[Change], odd: Oddity) -> list[Node]:
    """Draws rows with one or several records each, and with oddities."""
    if side.name == "googlesql":
        structs: list[Any] = [googlesql(one) for one in some]
        together = 1 if odd is even else draw(st.sampled_from((1, 1, 1, 2, 5)))  # such rows are left to the row decoder
        found: list[Any] = [structs[at : at + together] for at in range(0, len(structs), together)]
        if together == 5:  # records of several kinds in one struct, and arrays of several
            found = [[[[one for struct in row for one in struct[kind]] for kind in range(3)]] for row in found]
        odd(draw, found)
        return found
    documents = [postgresql(one) for one in some]
    odd(draw, documents)
    style = draw(st.sampled_from(STYLES))
    return [text(document, style) for document in documents]


@st.composite
def answers(draw: st.DrawFn, side: Side, spread: Spread, odd: Oddity, described: bytes | None) -> list[list[bytes]]:
    """Draws the answer to a query, in the lists in which a decoder receives it."""
    some = draw(changes(spread))
    return draw(lists(draw(framed(draw(rows(side, some, odd)), described))))


def even(_: st.DrawFn, __: list[Any]) -> None:
    """Leaves the rows as they are."""


def typed(draw: st.DrawFn, trees: list[Any]) -> None:
    """Changes rows as a typed engine may: NULL anywhere, other texts, fewer or more elements of an array."""
    for _ in range(draw(st.integers(0, 3))):
        change = draw(st.sampled_from((_null, _text, _huge, _emptied)))
        changed(draw, trees, partial(change, draw))


def _null(_: st.DrawFn, of: Any, at: Any) -> None:
    of[at] = None


def _text(draw: st.DrawFn, of: Any, at: Any) -> None:
    if isinstance(of[at], str):
        of[at] = draw(
            st.text(max_size=4) | st.sampled_from(("0001-01-01T00:00:00Z", "9999-01-01T00:00:00.5Z", "2" * 30))
        )


def _huge(_: st.DrawFn, of: Any, at: Any) -> None:
    if isinstance(of[at], str):
        of[at] = "€x" * 30_000


def _emptied(_: st.DrawFn, of: Any, at: Any) -> None:
    """Empties an array of structs that begin with a string; a struct always has all fields of its type."""
    if isinstance(of[at], list) and all(isinstance(item, dict) or _begins_with_text(item) for item in of[at]):
        of[at] = []


def _begins_with_text(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and isinstance(item[0], str)


def other(draw: st.DrawFn, trees: list[Any]) -> None:
    """Changes one thing in a data change record to an unknown one: an item more, one less, or one of another kind."""
    change = draw(st.sampled_from((_more, _more, _less, _number, _number_as_text, _kind)))
    changed(draw, [one for tree in trees for one in _data(tree)], partial(change, draw))


def _data(row: Any) -> list[Any]:
    return [row] if isinstance(row, dict) else [record for struct in row for record in struct[0]]


def _more(draw: st.DrawFn, of: Any, at: Any) -> None:
    item = draw(st.sampled_from(("new", True, None, ["new"], [["new"]], 1.5, "2026-01-02T03:04:05Z")))
    if isinstance(of, list):
        of.insert(at if draw(st.booleans()) else len(of), item)
    else:
        of["new"] = item


def _less(_: st.DrawFn, of: Any, at: Any) -> None:
    del of[at]


def _number(_: st.DrawFn, of: Any, at: Any) -> None:
    of[at] = 1.0


def _number_as_text(_: st.DrawFn, of: Any, at: Any) -> None:
    if isinstance(of[at], int):
        of[at] = str(of[at])


def _kind(draw: st.DrawFn, of: Any, at: Any) -> None:
    kinds = ("true", "", True, ["x"], 2**70 if isinstance(of, dict) else "1" * 30)
    of[at] = draw(st.sampled_from(kinds if isinstance(of[at], list) else (*kinds, [])))


@both_dialects
@effort(120)
@given(st.data())
def test_typical_records_become_columns_whatever_their_framing(side: Side, data: st.DataObject) -> None:
    given = data.draw(answers(side, TYPICAL, even, side.metadata))
    wanted = check(side, given)
    assert all(isinstance(item, Changes) for item in fast_items(side, given))
    assert len(fast_items(side, given)) == sum(map(bool, wanted))


@both_dialects
@effort(250)
@given(st.data(), st.sampled_from(FEWS))
def test_both_decoders_give_the_same_records_of_any_kind_and_order(side: Side, data: st.DataObject, few: int) -> None:
    check(side, data.draw(answers(side, ANY, typed, side.metadata)), few)


@both_dialects
@effort(200)
@given(st.data(), st.booleans())
def test_both_decoders_agree_on_records_that_are_not_of_their_row_type(
    side: Side, data: st.DataObject, typical: bool
) -> None:
    """No typed engine sends such rows."""
    check(side, data.draw(answers(side, TYPICAL if typical else ANY, other, side.metadata)))


def other_metadata() -> list[bytes | None]:
    return [None, b"", *other_row_types()]


@effort(100)
@given(st.data(), st.sampled_from(other_metadata()), st.sampled_from((even, typed, other)))
def test_rows_of_another_row_type_are_left_to_the_row_decoder(
    data: st.DataObject, described: bytes | None, odd: Oddity
) -> None:
    side = SIDES["googlesql"]
    given = data.draw(answers(side, TYPICAL, odd, described))
    check(side, given)
    assert not [item for item in fast_items(side, given) if isinstance(item, Changes)]


RICH = DataChange(
    commit_timestamp="2026-01-02T03:04:59.123456Z",
    record_sequence="00000001",
    server_transaction_id="ä€🎸",
    is_last_record_in_transaction_in_partition=True,
    table=TABLES[2],
    mods=[('{"Id":"1"}', '{"Ä":"€🎸"}', "{}"), ('{"Id":"2"}', "{}", '{ "S" : "}{" }')],
    mod_type="UPDATE",
    value_capture_type="OLD_AND_NEW_VALUES",
    number_of_records_in_transaction=12,
    number_of_partitions_in_transaction=1,
    transaction_tag="",
    is_system_transaction=False,
)


OTHERS = (Children("2026-01-02T03:04:59.5Z", "00000002", [("c", ["p", None])]), Heartbeat("2026-01-02T03:04:59.5Z"))


@both_dialects
@pytest.mark.parametrize("one", [RICH, *OTHERS], ids=lambda one: type(one).__name__)
def test_both_decoders_agree_on_a_null_in_any_place(side: Side, one: Change) -> None:
    def row(change: Change, null: int | None = None) -> Node:
        tree: Any = [googlesql(change)] if side.name == "googlesql" else postgresql(change)
        if null is not None:
            of, at = places(tree)[null]
            of[at] = None
        return tree if side.name == "googlesql" else text(tree, Style())

    count = len(places([googlesql(one)] if side.name == "googlesql" else postgresql(one)))
    for null in range(count):
        nodes = [row(RICH), row(RICH), row(one, null), row(RICH), row(one)]
        check(side, [[message(nodes, metadata=side.metadata)]])
        check(side, [[message([], metadata=side.metadata)], [message([node]) for node in nodes]])


@both_dialects
def test_a_row_in_two_chunks_is_the_same_wherever_it_was_cut(side: Side) -> None:
    row: Node = [googlesql(RICH)] if side.name == "googlesql" else text(postgresql(RICH), Style(" "))
    (wanted,) = outcome(side.plain(), [[message([row] * 3, metadata=side.metadata)]])
    tried = 0
    for left, right in islice(cuts(row), 0, None, round(1 / SHARE)):
        messages = [message([row, left], chunked=True, metadata=side.metadata), message([right, row])]
        for parted in ([messages], [[one] for one in messages]):
            found = fast_items(side, parted)
            assert all(isinstance(item, Changes) for item in found)
            assert records(found) == wanted
            tried += 1
    assert tried > 400 * SHARE


def test_the_row_type_of_a_query_is_checked_once() -> None:
    """The check takes longer than decoding a row."""
    checked: list[bytes | None] = []
    described = next(other_row_types())

    def knows(metadata: bytes | None) -> bool:
        checked.append(metadata)
        return False

    of = Decoder(walk(GOOGLESQL, IMMUTABLE), googlesql_columns, knows)
    rows_ = [message([[googlesql(RICH)]], metadata=described if first else None) for first in (True, False, False)]
    for one in rows_:
        assert len(of([one], 0)) == 1
    assert checked == [described]
