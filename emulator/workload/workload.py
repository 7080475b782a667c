"""Runs a seeded workload on a sample database, and records exactly what it committed.

One thread commits, because the emulator aborts concurrent transactions; other threads may read at any time what was
committed and what the tables should hold. The record is what a change stream must report, so a reader can be compared
with it.
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

from emulator.workload.contents import Contents, Key
from emulator.workload.journal import CommittedMod, Journal, PlannedMod, committed
from emulator.workload.plan import LARGEST, Plan, Planner
from emulator.workload.sample import SampleDatabase
from emulator.workload.values import Value

__all__ = ["CommittedMod", "OutcomeUnknownError", "PlannedMod", "Workload", "by_transaction"]


class OutcomeUnknownError(RuntimeError):
    """It is unknown whether a failed commit happened; `mods` is what it would have changed.

    They are not among the committed mods, and the workload commits nothing more.
    """

    def __init__(self, message: str, mods: tuple[PlannedMod, ...]) -> None:
        super().__init__(message)
        self.mods = mods


class Workload:
    """Random inserts, updates and deletes on all tables of a sample database that has no other writer.

    The same seed on an empty database gives the same transactions. `average_size` is the mods of a transaction on
    average (1 to 60 each, cascading deletes not counted). `run_length` is how many writes of one kind to one table
    follow each other on average, which share a record. Tables grow to about `rows_per_table` rows. `journal` is a file
    to append to (see emulator.workload.journal).
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
        """The number of transactions that were committed."""
        with self._lock:
            return self._transactions

    @property
    def committed(self) -> list[CommittedMod]:
        """The mods committed so far, in commit order, as a copy; may be read in any thread."""
        return self.committed_since(0)

    def committed_since(self, index: int) -> list[CommittedMod]:
        """Returns the committed mods from that index on, in commit order; may be called in any thread."""
        with self._lock:
            return self._committed[index:]

    def rows(self, table: str) -> dict[Key, dict[str, Value]]:
        """Returns a table's rows by key, with all columns except generated ones; may be called in any thread.

        Raises KeyError for a table that the sample does not have.
        """
        names = [column.name for column in self._contents.tables[table].key]
        with self._lock:
            rows = list(self._contents.rows[table].items())
        return {key: {**dict(zip(names, key, strict=True)), **row} for key, row in rows}

    def commit_one(self, *, most: int = LARGEST) -> tuple[CommittedMod, ...]:
        """Commits one transaction of about `most` mods at most, and returns what it changed.

        ABORTED is retried. Raises OutcomeUnknownError if it is unknown whether the commit happened, and at every call
        after that.
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
        """Commits until `mods` mods are committed, `seconds` have passed or `stop` is set; returns how many mods.

        A cascading delete may add a few. `rate` is in mods per second over this run; None is as fast as possible.
        Raises ValueError if `mods`, `seconds` and `stop` are all None; OutcomeUnknownError as `commit_one`.
        """
        if mods is None and seconds is None and stop is None:
            raise ValueError("run needs a bound: pass mods, seconds, or stop")
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
        """Closes the journal; a workload with a journal cannot commit after that."""
        self._journal.close()

    def _commit(self, plan: Plan) -> int:
        """Commits the plan and returns its commit timestamp in nanoseconds since 1970."""
        if plan.statement is not None:
            return self._run_statement(plan.statement, len(plan.mods))
        with self._database.batch() as batch:
            for write in plan.writes:
                write(batch)
        return _nanoseconds(batch.committed)

    def _run_statement(self, statement: str, expected: int) -> int:
        """Runs one DML statement in its own transaction; it must change `expected` rows, as the model says."""
        used: list[Transaction] = []

        def work(transaction: Transaction) -> None:
            changed = transaction.execute_update(statement)
            if changed != expected:
                raise AssertionError(f"{changed} rows changed where the model has {expected}: is there another writer?")
            used.append(transaction)

        self._database.run_in_transaction(work)
        return _nanoseconds(used[-1].committed)


def _nanoseconds(timestamp: DatetimeWithNanoseconds | Timestamp | None) -> int:
    """Returns a commit timestamp of a batch or a transaction in nanoseconds since 1970, without rounding."""
    assert timestamp is not None
    stamp = timestamp.timestamp_pb() if isinstance(timestamp, DatetimeWithNanoseconds) else timestamp
    return int(stamp.ToNanoseconds())


def by_transaction(mods: Iterable[CommittedMod]) -> Mapping[int, list[CommittedMod]]:
    """Group committed mods by their commit timestamp in nanoseconds, in commit order."""
    grouped: dict[int, list[CommittedMod]] = {}
    for mod in mods:
        grouped.setdefault(mod.commit_timestamp_ns, []).append(mod)
    return grouped
