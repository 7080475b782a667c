"""The versions of rows that destinations are compared with, computed in plain Python."""

from dataclasses import replace

from tests.spark_sink.sinks.tables.history.versions import Event, Version, versions_of

COLUMNS = ("Name", "Age")


def spans(*events: Event) -> list[tuple[object, int, int | None]]:
    """The name, and from when to when."""
    return [(one.values["Name"], _at(one.start), _at(one.end)) for one in versions_of(events, COLUMNS)]


def _at(number: str | None) -> int:
    return -1 if number is None else int(number[:16], 16)


def insert(at: int, name: str, sequence: int = 0) -> Event:
    return Event(1, at, "INSERT", {"Name": name, "Age": 5}, sequence)


def read(at: int, name: str) -> Event:
    """A row of a backfill."""
    return replace(insert(at, name), was_read=True)


def delete(at: int, sequence: int = 0) -> Event:
    return Event(1, at, "DELETE", {}, sequence)


def test_a_key_that_is_deleted_and_inserted_again_has_two_spans() -> None:
    assert spans(insert(1, "a"), delete(3), insert(7, "b")) == [("a", 1, 3), ("b", 7, -1)]


def test_a_commit_timestamp_makes_one_version() -> None:
    assert spans(insert(1, "a"), delete(3), insert(3, "b", 1), insert(3, "c", 2)) == [("a", 1, 3), ("c", 3, -1)]
    assert spans(insert(1, "a"), delete(1, 1)) == []


def test_an_update_changes_the_columns_that_it_names() -> None:
    update = Event(1, 2, "UPDATE", {"Name": "b"})
    _, changed = versions_of([insert(1, "a"), update], COLUMNS)
    assert (changed.values, changed.captured) == ({"Name": "b", "Age": 5}, None)
    assert versions_of([update], COLUMNS) == [
        Version(1, {"Name": "b", "Age": None}, ("Name",), "UPDATE", update.number)
    ]


def test_a_row_of_a_backfill_makes_a_version_if_it_is_new() -> None:
    update = Event(1, 2, "UPDATE", {"Name": "b"})
    assert spans(insert(1, "a"), read(5, "a"), delete(9)) == [("a", 1, 9)]
    assert spans(update, read(5, "b")) == [("b", 2, 5), ("b", 5, -1)]
    assert spans(read(5, "b"), delete(9)) == [("b", 5, 9)]


def test_an_insert_of_a_row_that_is_there_makes_a_version_because_a_delete_was_not_delivered() -> None:
    assert spans(insert(1, "a"), insert(5, "a")) == [("a", 1, 5), ("a", 5, -1)]
