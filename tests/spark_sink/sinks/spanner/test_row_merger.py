"""Promises of merged rows and of units, for random histories."""

from itertools import pairwise

import orjson
from hypothesis import given
from hypothesis import strategies as st

from connector.core.timestamps import format_rfc3339, parse
from spark_sink.sinks.spanner.writing.row_merger import Key, KeyedChange, Value, merged
from spark_sink.sinks.spanner.writing.units import UnitPosition, units

COLUMNS = ("A", "B", "C")
KEYS = {"T": ("Id",)}
Rows = dict[Key, dict[str, Value]]


@st.composite
def histories(draw: st.DrawFn) -> list[KeyedChange]:
    """Changes that a database could have made: what is updated or deleted is there, and what is inserted is not."""
    there: set[int] = set()
    changes = []
    transaction = 0
    for place in range(draw(st.integers(0, 30))):
        if draw(st.booleans()):
            transaction += 1
        key = draw(st.integers(1, 4))
        mod_type = draw(st.sampled_from(["UPDATE", "DELETE"])) if key in there else "INSERT"
        is_whole = draw(st.booleans())
        names = COLUMNS if mod_type == "INSERT" or is_whole else draw(st.sets(st.sampled_from(COLUMNS)))
        values = {"Id": str(key)} | ({} if mod_type == "DELETE" else {name: f"{name}{place}" for name in names})
        (there.discard if mod_type == "DELETE" else there.add)(key)
        payload = orjson.dumps(values).decode()
        changes.append(
            KeyedChange("T", mod_type, is_whole, payload, _time_of(transaction), "", str(transaction), (1, place))
        )
    return changes


def one_by_one(rows: Rows, changes: list[KeyedChange]) -> Rows:
    found = {key: dict(values) for key, values in rows.items()}
    for change in changes:
        values = orjson.loads(change.payload)
        key = (values["Id"],)
        if change.mod_type == "DELETE":
            found.pop(key, None)
        elif change.mod_type == "INSERT":
            found[key] = values
        else:
            found[key].update(values)
    return found


def at_once(rows: Rows, changes: list[KeyedChange]) -> Rows:
    """As the mutations do it: deletes first, then writes; an update needs its row."""
    found = {key: dict(values) for key, values in rows.items()}
    changed = merged(changes, KEYS).rows
    for row in changed:
        if row.is_deleted or row.is_replaced:
            found.pop(row.key, None)
    for row in changed:
        if not row.is_deleted:
            assert row.is_whole or row.key in found
            found.setdefault(row.key, {}).update(row.values)
    return found


def _time_of(transaction: int) -> str:
    """Every second transaction has the commit timestamp of the one before."""
    return format_rfc3339(1_000_000_000 + transaction // 2)


@given(histories(), st.integers(0, 30))
def test_changes_at_once_make_the_same_rows_as_one_after_another(changes: list[KeyedChange], cut: int) -> None:
    before = one_by_one({}, changes[:cut])
    assert at_once(before, changes[cut:]) == one_by_one(before, changes[cut:])


@given(histories(), st.integers(0, 30))
def test_changes_that_are_applied_twice_make_the_same_rows(changes: list[KeyedChange], cut: int) -> None:
    once = at_once(one_by_one({}, changes[:cut]), changes[cut:])
    assert at_once(once, changes[cut:]) == once


@given(histories(), st.integers(1, 8), st.integers(1, 200))
def test_units_are_whole_transactions_and_follow_one_another(
    changes: list[KeyedChange], most: int, most_bytes: int
) -> None:
    start, end = UnitPosition(1, 0), UnitPosition(2, 0)
    found = list(units(changes, start=start, end=end, most=most, most_bytes=most_bytes))
    assert [change for unit in found for change in unit.changes] == changes
    for one, other in pairwise(found):
        assert one.end == other.start
        assert list(one.changes)[-1].transaction != next(other.changes).transaction
        assert one.complete == parse(next(other.changes).commit_timestamp) - 1
    for unit in found:
        assert len(unit.transactions) == 1 or len(list(unit.changes)) <= most
        if len(unit.transactions) > 1:
            first, second = unit.halves()
            assert (first.start, first.end, second.end) == (unit.start, second.start, unit.end)
            assert (first.complete, second.complete) == (
                parse(next(second.changes).commit_timestamp) - 1,
                unit.complete,
            )
            assert [*first.changes, *second.changes] == list(unit.changes)
    if found:
        assert (found[0].start, found[-1].end, found[-1].complete) == (start, end, None)


def test_a_unit_has_changes_of_one_spelling_of_a_table() -> None:
    """One table in the destination: a row that was deleted before it was created again must not be deleted last."""
    tables = ["Parts", "Others", "parts", "Others", "parts", "Parts"]
    changes = [
        KeyedChange(table, "INSERT", True, "{}", _time_of(place), "", str(place), (1, place))
        for place, table in enumerate(tables)
    ]
    found = units(changes, start=UnitPosition(1, 0), end=UnitPosition(2, 0), most=100, most_bytes=100)
    assert [[change.table for change in unit.changes] for unit in found] == [tables[:2], tables[2:5], tables[5:]]
