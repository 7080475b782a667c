"""Changes and a backfill, merged in any order, make the source's rows, and no row is seen going back in time."""

import json
from collections.abc import Callable
from functools import partial

from hypothesis import event, given
from hypothesis import strategies as st

from spark_sink.sinks.bigquery.merging.row_merger import RowMerger
from tests.connector.builders import AT
from tests.property.bigquery_merging import (
    CHANGE,
    SEQUENCE,
    TABLE,
    Backfilled,
    Change,
    Key,
    lines_of,
    replayed,
    rows_of,
    snapshot_of,
)
from tests.property.effort import effort

Step = Callable[[], None]
_TOGETHER = 3
"""Changes that :func:`rows_of` commits together."""


class Watched(Backfilled):
    """The table, and what a reader has seen of each row: when its last change was committed, deletions among them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[Key, str] = {}

    def merge(self, lines: bytes) -> None:
        super().merge(lines)
        for line in map(json.loads, lines.splitlines()):
            key = self._key(line)
            self.seen[key] = max(self.seen.get(key, ""), _commit(line["datastream_metadata"][SEQUENCE]))

    def look(self) -> None:
        """Fails if a row is older than it was."""
        for key, number in self.numbers.items():
            assert _commit(number) >= self.seen.get(key, ""), "a row went back in time"
            self.seen[key] = _commit(number)


def _commit(number: str) -> str:
    """The commit timestamp; the changes of one commit are never merged apart."""
    return number[:16]


@effort(150)
@given(st.lists(CHANGE, max_size=18), st.data())
def test_changes_and_a_backfill_in_any_order_make_the_sources_rows(changes: list[Change], data: st.DataObject) -> None:
    together = len(changes) // _TOGETHER
    read_at = data.draw(st.integers(0, together), "commits up to the backfill's timestamp")
    since = data.draw(st.integers(0, read_at), "commits before the stream's start")
    table = Watched()
    streamed = _stream(table, changes, since * _TOGETHER, read_at * _TOGETHER, data)
    read = _backfill(table, replayed(changes[: read_at * _TOGETHER]), AT + read_at - 1, data)
    while streamed or read:
        is_stream = bool(streamed) and (not read or data.draw(st.booleans(), "the stream's turn"))
        (streamed if is_stream else read).pop(0)()
        table.look()
    expected = replayed(changes)
    event(f"rows: {len(expected)}")
    assert table.rows == expected


def _stream(table: Watched, changes: list[Change], first: int, read_at: int, data: st.DataObject) -> list[Step]:
    """The steps of the stream's sink, some of which a killed one had done before."""
    steps: list[Step] = []
    rows = rows_of(changes) if changes else None
    while rows is not None and first < len(changes):
        count = data.draw(st.integers(1, len(changes) - first), "changes of a load")
        lines = lines_of(RowMerger(TABLE), rows.slice(first, count))
        first += count
        noted = first > read_at or data.draw(st.booleans(), "noted before it has to be")
        note: list[Step] = [partial(table.note, lines)] if noted else []
        merge: list[Step] = [partial(table.merge, lines)]
        done = data.draw(st.sampled_from([[], note, [*note, *merge]]), "done by a killed process")
        steps += [*done, *note, *merge]
    return steps


def _backfill(table: Watched, rows: dict[Key, dict[str, object]], timestamp: int, data: st.DataObject) -> list[Step]:
    """The steps of the backfill's sink: rows in any order, some of them again."""
    keys = data.draw(st.permutations(sorted(rows)), "the order of the backfill")
    again = data.draw(st.lists(st.sampled_from(sorted(rows)), max_size=2) if rows else st.just([]), "read again")
    return [
        partial(table.backfill, lines_of(RowMerger(TABLE), snapshot_of({key: rows[key]}, timestamp)))
        for key in [*keys, *again]
    ]
