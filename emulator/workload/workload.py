"""A seeded workload on a sample database that remembers exactly what it committed.

One thread commits (transactions of two clients collide in the emulator); others may ask meanwhile what was
committed and what the tables should hold. What is remembered is what a change stream has to report, so a reader can be
held against it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random

from google.api_core.exceptions import GoogleAPIError
from google.cloud.spanner_v1.transaction import Transaction
from google.protobuf.timestamp_pb2 import Timestamp
from proto.datetime_helpers import DatetimeWithNanoseconds

from connector.core.timestamps import SECOND
from emulator.workload.contents import Contents, Key
from emulator.workload.journal import CommittedMod, Journal, PlannedMod, committed
from emulator.workload.plan import LARGEST, Plan, Planner
from emulator.workload.sample import SampleDatabase
from emulator.workload.values import Value

__all__ = ["CommittedMod", "OutcomeUnknownError", "PlannedMod", "Workload", "by_transaction"]


class OutcomeUnknownError(RuntimeError):
    """A commit failed in a way that leaves open whether it happened; `mods` is what it would have changed.

    It is not among the committed mods, and the workload goes no further.
    """

    def __init__(self, message: str, mods: tuple[PlannedMod, ...]) -> None:
        super().__init__(message)
        self.mods = mods


class Workload:
    """Random inserts, updates and deletes on all tables of a sample database that nobody else writes to.

    The same seed on an empty database gives the same transactions. `average_size` is in mods per transaction (1 to
    60 each, cascades aside), `run_length` in writes of one kind to one table after the other, which share a record;
    `rows_per_table` is about what tables grow to, `journal` a file that is appended to (see
    emulator.workload.journal).
    """

    def __init__(
        self,
        sample: SampleDatabase,
        *,
        seed: int,
        average_size: float = 5.0,
        rows_per_table: int = 200,
        run_length: float = 1.0,
        journal: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seed = seed
        self._database = sample.database
        self._contents = Contents(sample.tables)
        self._planner = Planner(
            self._contents,
            Random(seed),  # noqa: S311 - a workload, no secret
            sample.dialect,
            average_size=average_size,
            rows_per_table=rows_per_table,
            run_length=run_length,
        )
        self._journal = Journal(journal)
        self._clock = clock
        self._lock = threading.Lock()
        self._committed: list[CommittedMod] = []
        self._transactions = 0
        self._doubt: OutcomeUnknownError | None = None

    @property
    def transactions(self) -> int:
        """How many transactions were committed."""
        with self._lock:
            return self._transactions

    @property
    def committed(self) -> list[CommittedMod]:
        """What was committed so far, in commit order: a copy, from any thread."""
        return self.committed_since(0)

    def committed_since(self, index: int) -> list[CommittedMod]:
        """Give what was committed, in commit order, from the mod with that index on; from any thread."""
        with self._lock:
            return self._committed[index:]

    def rows(self, table: str) -> dict[Key, dict[str, Value]]:
        """Give the rows a table holds now, whole rows by key, generated columns aside; from any thread.

        Raises KeyError for a table the sample does not have.
        """
        names = [column.name for column in self._contents.tables[table].key]
        with self._lock:
            rows = list(self._contents.rows[table].items())
        return {key: {**dict(zip(names, key, strict=True)), **row} for key, row in rows}

    def commit_one(self, *, most: int = LARGEST) -> tuple[CommittedMod, ...]:
        """Commit one transaction of about `most` mods at most, and give what it changed.

        ABORTED is tried again. Raises OutcomeUnknownError where it is open whether the commit happened, and
        from then on.
        """
        if self._doubt is not None:
            raise self._doubt
        plan = self._planner.transaction(most)
        self._journal.attempt(self._transactions, plan.mods)
        try:
            timestamp_ns = self._commit(plan)
        except GoogleAPIError as error:
            self._doubt = OutcomeUnknownError(
                f"transaction {self._transactions} of seed {self.seed} may or may not be committed: {error}",
                tuple(plan.mods),
            )
            raise self._doubt from error
        self._journal.committed(self._transactions, timestamp_ns)
        done = tuple(committed(mod, self._transactions, timestamp_ns) for mod in plan.mods)
        with self._lock:
            self._contents.apply(plan.mods)
            self._committed += done
            self._transactions += 1
        return done

    def run(
        self,
        *,
        mods: int | None = None,
        seconds: float | None = None,
        rate: float | None = None,
        stop: threading.Event | None = None,
    ) -> int:
        """Commit until so many mods (a cascade may add a few), so many seconds, or `stop`; gives the mods committed.

        `rate` is in mods per second, over this run; None: as fast as it goes.
        Raises ValueError when none of the three bounds it; OutcomeUnknownError as `commit_one`.
        """
        if mods is None and seconds is None and stop is None:
            raise ValueError("a run needs an end: mods, seconds, or stop")
        stop = stop or threading.Event()
        start, count = self._clock(), 0
        while not stop.is_set() and (mods is None or count < mods):
            elapsed = self._clock() - start
            if seconds is not None and elapsed >= seconds:
                break
            if rate and (early := count / rate - elapsed) > 0:
                stop.wait(early if seconds is None else min(early, seconds - elapsed))
                continue
            count += len(self.commit_one(most=LARGEST if mods is None else mods - count))
        return count

    def close(self) -> None:
        """Close the journal; the workload commits no more after that if it has one."""
        self._journal.close()

    def _commit(self, plan: Plan) -> int:
        """Commit the plan and give its commit timestamp in nanoseconds."""
        if plan.statement is not None:
            return self._run_statement(plan.statement, len(plan.mods))
        with self._database.batch() as batch:
            for write in plan.writes:
                write(batch)
        return _nanoseconds(batch.committed)

    def _run_statement(self, statement: str, expected: int) -> int:
        """Run one DML statement in a transaction of its own; it must change as many rows as the model says."""
        used: list[Transaction] = []

        def work(transaction: Transaction) -> None:
            changed = transaction.execute_update(statement)
            if changed != expected:
                raise AssertionError(f"{changed} rows changed where the model has {expected}: someone else writes too")
            used.append(transaction)

        self._database.run_in_transaction(work)
        return _nanoseconds(used[-1].committed)


def _nanoseconds(moment: DatetimeWithNanoseconds | Timestamp | None) -> int:
    """Give a commit timestamp, as a batch or a transaction holds it, in nanoseconds since 1970; no float on the way."""
    assert moment is not None
    stamp = moment.timestamp_pb() if isinstance(moment, DatetimeWithNanoseconds) else moment
    return int(stamp.seconds) * SECOND + int(stamp.nanos)


def by_transaction(mods: Iterable[CommittedMod]) -> Mapping[int, list[CommittedMod]]:
    """Group committed mods by their commit timestamp in nanoseconds, in commit order."""
    grouped: dict[int, list[CommittedMod]] = {}
    for mod in mods:
        grouped.setdefault(mod.commit_timestamp_ns, []).append(mod)
    return grouped
