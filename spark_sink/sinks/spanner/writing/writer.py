"""Writes units to the destination, in one of two modes, and what Spanner refuses to the dead letters.

Mode ``transactions`` commits a unit at once, together with the position after it. Of a unit that Spanner refuses the
halves are tried, down to one transaction, which becomes dead letters whole.

Mode ``rows`` commits the rows of a unit in any number of commits, table by table, several at a time. Of a commit that
Spanner refuses the halves are tried, down to one row. Rejected rows are tried again after all others, as long as that
helps, because a row may have to wait for another one (a unique index, a reference). The rest are dead letters. They are
tried before the last deletes, too, which take with them what still refers to their rows (``ON DELETE CASCADE``).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import grpc

from spark_sink.errors import SinkError
from spark_sink.sinks.spanner.config import Applying
from spark_sink.sinks.spanner.writing.mutations import (
    BYTES,
    CELLS,
    DELETE,
    MOST_CELLS,
    Level,
    RowMutation,
    commits,
    encoded,
)
from spark_sink.sinks.spanner.writing.planning import WritePlan, WritePlanner, is_of_user
from spark_sink.sinks.spanner.writing.progress import AppliedProgress
from spark_sink.sinks.spanner.writing.row_merger import KeyedChange, MergedRow
from spark_sink.sinks.spanner.writing.transactions import THREADS, RefusedWriteError
from spark_sink.sinks.spanner.writing.units import Unit, UnitPosition

_REASON = 500
"""Characters of a reason."""

Refused = list[tuple[RowMutation, RefusedWriteError]]


class Rejection(NamedTuple):
    """A change that is not applied.

    Attributes:
        change: the change.
        why: the reason, which may hold values.
        brief: the reason without values, for logs.
    """

    change: KeyedChange
    why: str
    brief: str


@dataclass(slots=True)
class WrittenUnits:
    """The result of writing a unit.

    Attributes:
        applied: how many changes of each table were applied, by its name in the source.
        rejected: those that were not.
        stopped: why no change of a table can be applied, by its name in the source.
        omitted: what was left out of how many changes (``MergedUnit``).
        stored: the dead letters of earlier units, whose reports were lost with an attempt that broke off.
    """

    applied: Mapping[str, int] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)
    stopped: Mapping[str, str] = field(default_factory=dict)
    omitted: Mapping[tuple[str, str], int] = field(default_factory=dict)
    stored: int = 0


class UnitWriter:
    """Writes units, one after another.

    Args:
        planner: plans them.
        progress: the bookkeeping row, which this process has.
        applying: the options.
    """

    def __init__(self, planner: WritePlanner, progress: AppliedProgress, applying: Applying) -> None:
        self._planner = planner
        self._progress = progress
        self._write = self._transactions if applying.mode == "transactions" else self._rows
        self._threads = ThreadPoolExecutor(THREADS, "commit")

    def close(self) -> None:
        """Waits for the commits that were started."""
        self._threads.shutdown(cancel_futures=True)

    def write(self, unit: Unit) -> Iterator[WrittenUnits]:
        """Writes a unit; yields what was rejected before the position passes it.

        Raises:
            SpannerCdcError: the destination cannot be written.
        """
        yield from self._write(unit)

    def _transactions(self, unit: Unit) -> Iterator[WrittenUnits]:
        plan = self._planner.plan(unit)
        refusal = None if plan.rejected else self._refusal(unit, plan)
        if refusal is None and not plan.rejected:
            yield WrittenUnits(_counts(unit), omitted=plan.omitted)
            return
        if len(unit.transactions) > 1:
            for half in unit.halves():
                yield from self._transactions(half)
            return
        why, brief = (str(refusal), refusal.brief) if refusal else (plan.rejected[0][1],) * 2
        if refusal and refusal.code in _OF_A_VALUE:
            rows = (one.row for level in plan.levels.in_order() for one in level)
            why = next(filter(None, map(self._planner.another_type, rows)), why)
        changes = [change for change in unit.changes if is_of_user(change)]
        if refusal and refusal.is_too_large:
            raise SinkError(
                f"a transaction of {len(changes)} changes, committed at {changes[0].commit_timestamp}, is too large for"
                f" the destination ({brief})",
                hint="Mode rows divides it; another mode needs another sink.name.",
            )
        whole = f"its transaction cannot be applied: {why[:_REASON]}"
        yield WrittenUnits({}, [Rejection(change, whole, brief) for change in changes], _stopped(plan))
        lacking = {change.table for change in changes}
        self._progress.advance(unit.start, unit.end, complete=unit.complete, lacking=lacking)

    def _refusal(self, unit: Unit, plan: WritePlan) -> RefusedWriteError | None:
        """Commits a unit; returns why Spanner refuses it, or None.

        In which order the mutations of a transaction satisfy every constraint is not known: another one is tried.
        """
        refusal = None
        for levels in plan.levels.orders() if len(unit.transactions) == 1 else (plan.levels.in_order(),):
            rows = chain.from_iterable(levels)
            try:
                self._progress.advance(unit.start, unit.end, encoded(rows), complete=unit.complete)
            except RefusedWriteError as error:
                refusal = error
            else:
                return None
        return refusal

    def _rows(self, unit: Unit) -> Iterator[WrittenUnits]:
        plan = self._planner.plan(unit)
        levels = plan.levels
        refused = self._each_of((*levels.deletes, *levels.writes), unit.start)
        if levels.last_deletes:  # they may take with them a row that referred to theirs, and does no longer
            refused = self._again(refused)
        refused = self._again(refused + self._each_of(levels.last_deletes, unit.start))
        rejected = self._rejected(plan, refused)
        yield WrittenUnits(_counts(unit, {one.change.at for one in rejected}), rejected, _stopped(plan), plan.omitted)
        lacking = {one.change.table for one in rejected}
        self._progress.advance(unit.start, unit.end, complete=unit.complete, lacking=lacking)

    def _each_of(self, levels: Iterable[Level], at: UnitPosition) -> Refused:
        """Commits levels, one after another; returns what is refused."""
        refused: Refused = []
        for level in levels:
            for found in self._threads.map(self._commit, list(commits(level))):
                refused += found
            self._progress.settle(at)
        return refused

    def _commit(self, rows: Sequence[RowMutation]) -> Refused:
        """Commits rows, or those of them that Spanner does not refuse; returns the others."""
        try:
            self._progress.commit(encoded(rows))
        except RefusedWriteError as error:
            if len(rows) == 1:
                return [(rows[0], error)]
            middle = len(rows) // 2
            return self._commit(rows[:middle]) + self._commit(rows[middle:])
        return []

    def _again(self, refused: Refused) -> Refused:
        """Tries rejected rows again, as long as some of them succeed; returns the others.

        Rows that are rejected for what they are wait until others, such as a parent, have succeeded, or cannot succeed
        without them, as a parent that refers to its child. A row that was written again is not deleted now.
        """
        refused = [(one, error) for one, error in refused if not (one.operation == DELETE and one.row.is_replaced)]
        waiting, alone = _divided(refused)
        while waiting:
            left = self._all_of(waiting)
            if len(left) == len(waiting):
                left = self._all_of(left + alone) if alone else left
                if len(left) == len(waiting) + len(alone):
                    return left
            else:
                left += self._all_of(alone)
            waiting, alone = _divided(left)
        return alone

    def _rejected(self, plan: WritePlan, refused: Refused) -> list[Rejection]:
        rows: list[tuple[MergedRow, str, str]] = [
            *((row, why, why) for row, why in plan.rejected),
            *((one.row, *self._why(one, error)) for one, error in refused),
        ]
        found = {change.at: Rejection(change, why, brief) for row, why, brief in rows for change in row.changes}
        return [found[at] for at in sorted(found)]

    def _why(self, one: RowMutation, error: RefusedWriteError) -> tuple[str, str]:
        """The reason for a rejected row, and the one without values."""
        if one.lacking and error.code in _WITHOUT_THE_ROW:
            lacking = (
                f"table {one.table} of the destination requires column {', '.join(one.lacking)}, which the change does"
                " not have: if the source has no such column any more, drop it there, too; then replay"
            )
            return lacking, lacking
        if error.code in _OF_A_VALUE and (another := self._planner.another_type(one.row)):
            return another, another
        return str(error)[:_REASON], error.brief

    def _all_of(self, refused: Refused) -> Refused:
        """Tries rows once more, many at a time; if none succeeds, all at once, as far as Spanner's limits allow.

        Rows may exchange values of a unique index, and succeed together only.
        """
        if not refused:
            return []
        rows = [one for one, _ in refused]
        left = list(chain.from_iterable(self._threads.map(self._commit, list(commits(rows)))))
        if len(left) < len(rows) or sum(len(one.columns) for one in rows) > MOST_CELLS:
            return left
        try:
            self._progress.commit(encoded(rows))
        except RefusedWriteError:
            return left
        return []


MOST_CHANGES = {"rows": 50_000, "transactions": 2_000}
"""Changes of a unit. In mode ``transactions`` it is one commit: of tables with ten columns, :data:`CELLS` cells."""

MOST_BYTES = {"rows": 8 * BYTES, "transactions": BYTES}
"""Characters of the payloads of a unit."""

assert MOST_CHANGES["transactions"] * 10 == CELLS


def _divided(refused: Refused) -> tuple[Refused, Refused]:
    """Rows that may succeed after or together with others, and those that are rejected for what they are."""
    alone = [one for one in refused if one[1].code in _OF_ONE_ROW]
    return [one for one in refused if one[1].code not in _OF_ONE_ROW], alone


def _stopped(plan: WritePlan) -> Mapping[str, str]:
    return {row.table: why for row, why in plan.rejected}


def _counts(unit: Unit, rejected: Collection[tuple[int, int]] = ()) -> Mapping[str, int]:
    return Counter(change.table for change in unit.changes if change.at not in rejected and is_of_user(change))


_OF_ONE_ROW = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE)
_WITHOUT_THE_ROW = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)
"""The codes of an insert without a required column, and of an update of a row that is not there."""
_OF_A_VALUE = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)
"""The codes of a value that a column cannot take."""
