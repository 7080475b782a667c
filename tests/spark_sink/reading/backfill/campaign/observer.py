"""Looks at merged tables again and again: no row may go back in time.

A key's `Count` never decreases in the database (`tables`), so a table that shows a smaller one than before, or a row
that was deleted as it was before, was changed by something older than what it had.
"""

from collections.abc import Callable
from itertools import cycle

from tests.background_thread import BackgroundThread
from tests.spark_sink.reading.backfill.campaign.tables import Key, tables


class Observations:
    """The observations of one table."""

    def __init__(self) -> None:
        self.rows = 0
        self._newest: dict[Key, int] = {}
        self._deleted: dict[Key, int] = {}

    def see(self, counts: dict[Key, int]) -> list[str]:
        """Takes a look's rows; returns what went back, a line each."""
        back = [
            f"{key} has {count} after {self._newest[key]}"
            for key, count in counts.items()
            if count < self._newest.get(key, count)
        ]
        back += [
            f"{key} was deleted, and has {counts[key]} again"
            for key, before in self._deleted.items()
            if counts.get(key, before + 1) <= before
        ]
        self._deleted |= {key: count for key, count in self._newest.items() if key not in counts}
        for key in counts.keys() & self._deleted.keys():
            del self._deleted[key]
        self._newest = counts
        self.rows += len(counts)
        return back


class Observer(BackgroundThread):
    """Looks at one table after the other in a thread, for as long as the context is open.

    Args:
        counts: gives the `Count` of each row of a table; an error of it is raised when the context ends.

    Attributes:
        looks: how often a table with rows was looked at.
        back: what went back, a line each.
    """

    def __init__(self, counts: Callable[[str], dict[Key, int]], pause: float = 0.5) -> None:
        super().__init__()
        self._counts = counts
        self._pause = pause
        self._seen = {table: Observations() for table in tables()}
        self.looks = 0
        self.back: list[str] = []

    @property
    def rows(self) -> int:
        """The number of rows that all looks have seen."""
        return sum(seen.rows for seen in self._seen.values())

    def _run(self) -> None:
        for table in cycle(tables()):
            if self._stop.wait(self._pause):
                return
            counts = self._counts(table)
            self.looks += bool(counts)
            self.back += [f"{table}: {line}" for line in self._seen[table].see(counts)]
