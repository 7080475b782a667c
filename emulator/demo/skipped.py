"""Decides whether the official emulator skipped a missing transaction, or the reader lost it.

The emulator's live queries scan in chops of 100 ms, up to but without a chop's end, and continue one microsecond after
it (ExecutePartitionQuery in its change_streams.cc). So such a query never returns a transaction that is committed
exactly on a chop's end: one in 100,001 per query. A bounded query over the past returns it. A missing transaction
counts as skipped by the emulator only if all of this holds; otherwise it is lost:

- all of its mods are missing, and at most a few transactions are;
- a bounded re-read returns every one of its mods;
- the reader logged no error;
- if the traffic was recorded: the reader queried the transaction's partition from before its commit to after it, and
  the emulator did not send it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from connector.core.timestamps import SECOND, format_rfc3339
from emulator.demo.plain_stream import PlainMod, committed_identity
from emulator.demo.reread import Reread, RereadError
from emulator.demo.wiretap import LiveQuery, WiretapError
from emulator.workload.journal import CommittedMod

MOST_SKIPPED = 3
"""The most transactions of a run that count as skipped: of 2,000 the emulator skips 0.02 at most."""

CHOP = 100_001_000
"""The nanoseconds from a chop's end to the next."""

Grid = Literal["on a chop's end", "not on a chop's end", "chops unknown"]


@dataclass(frozen=True, slots=True)
class Skip:
    """A transaction that the emulator skipped; its commit timestamp is in nanoseconds since 1970."""

    commit_timestamp: int
    mods: int
    grid: Grid

    def __str__(self) -> str:
        return f"{format_rfc3339(self.commit_timestamp)} ({self.mods} mods, {self.grid})"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The missing mods that the emulator `skipped`, the number that is `lost`, and the `reasons` why these are lost."""

    skipped: tuple[Skip, ...] = ()
    lost: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def skipped_mods(self) -> int:
        """The number of mods that the emulator skipped."""
        return sum(skip.mods for skip in self.skipped)


class _LostError(Exception):
    """A transaction is lost; the message is one line that says why it does not count as skipped."""


def missing_by_commit(committed: Iterable[CommittedMod], delivered: Iterable[int]) -> dict[int, int]:
    """Counts the missing mods by commit timestamp; `delivered` has each delivered mod's commit timestamp."""
    return dict(Counter(mod.commit_timestamp_ns for mod in committed) - Counter(delivered))


def judge(
    missing: Mapping[int, int],
    committed: Sequence[CommittedMod],
    reread: Reread,
    *,
    errors: Sequence[str] = (),
    tapped: Callable[[], list[LiveQuery]] | None = None,
    most: int = MOST_SKIPPED,
) -> Judgement:
    """Decides which missing mods were skipped and which are lost; it raises nothing.

    Args:
        missing: how many mods are missing, by commit timestamp.
        committed: all that was committed.
        reread: reads a past range once more.
        errors: the errors that the reader logged; with any, nothing counts as skipped.
        tapped: returns the recorded queries, if the traffic was recorded.
        most: how many transactions may count as skipped.
    """
    if not missing:
        return Judgement()
    lost = sum(missing.values())
    if errors:
        return Judgement(lost=lost, reasons=(f"the reader logged {len(errors)} errors: {errors[0]}",))
    if len(missing) > most:
        times = f"from {format_rfc3339(min(missing))} to {format_rfc3339(max(missing))}"
        return Judgement(lost=lost, reasons=(f"{len(missing)} transactions are missing, {times}: too many",))
    try:
        queries = None if tapped is None else tapped()
    except WiretapError as error:
        return Judgement(lost=lost, reasons=(str(error),))
    skipped, reasons = [], []
    for timestamp in sorted(missing):
        mods = [mod for mod in committed if mod.commit_timestamp_ns == timestamp]
        start = max(timestamp - SECOND, min(mod.commit_timestamp_ns for mod in committed))
        try:
            skipped.append(_skip(mods, missing[timestamp], partial(reread, start), queries))
        except (_LostError, RereadError) as error:
            reasons.append(f"{format_rfc3339(timestamp)}: {error}")
    return Judgement(tuple(skipped), lost - sum(skip.mods for skip in skipped), tuple(reasons))


def _skip(
    mods: list[CommittedMod], missing: int, reread: Callable[[int], list[PlainMod]], queries: list[LiveQuery] | None
) -> Skip:
    """Returns the transaction as skipped.

    Raises:
        _LostError: it is lost.
        RereadError: the re-read failed, so that this cannot be decided.
    """
    timestamp = mods[0].commit_timestamp_ns
    if missing != len(mods):
        raise _LostError(f"{missing} of the transaction's {len(mods)} mods are missing: the emulator skips whole ones")
    found = [mod for mod in reread(timestamp) if mod.commit_timestamp == timestamp]
    wanted = Counter(map(committed_identity, mods))
    if lacking := (wanted - Counter(mod.identity for mod in found)).total():
        raise _LostError(f"a bounded re-read lacks {lacking} of the transaction's {len(mods)} mods")
    if queries is None:
        return Skip(timestamp, missing, "chops unknown")
    grids = [_grid(timestamp, partition, queries) for partition in {mod.partition for mod in found}]
    return Skip(timestamp, missing, grids[0] if len(set(grids)) == 1 else "chops unknown")


def _grid(timestamp: int, partition: str, queries: list[LiveQuery]) -> Grid:
    """Returns whether the timestamp is on a chop's end of the queries that had to return it and did not.

    Raises:
        _LostError: no query had to return it, or one did.
    """
    of_partition = [query for query in queries if query.token == partition]
    if any(mod.commit_timestamp == timestamp for query in of_partition for mod in query.records.mods):
        raise _LostError("the emulator sent it, and the reader lost it")
    passed = [query for query in of_partition if query.start <= timestamp < query.reached]
    if not passed:
        raise _LostError("the reader has not queried its partition from before it to after it")
    last = {start for query in passed for _, start in query.records.children}
    ends = [at for query in passed for at in query.records.heartbeats if at not in last]
    ends += [query.start + CHOP - 1_000 for query in passed if (timestamp - query.start + 1_000) % CHOP == 0]
    if not ends:
        return "chops unknown"
    return "on a chop's end" if any((timestamp - end) % CHOP == 0 for end in ends) else "not on a chop's end"
