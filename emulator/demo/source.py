"""What the demo replicates: a workload on the official emulator, or, where there is none, a scripted Spanner server.

The scripted server runs in a process of its own, so that it takes nothing from the demo's. It serves a scenario that
unfolds by the clock on the wall; the demo has the same scenario, and with it the truth.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Protocol

from connector.core.timestamps import SECOND, format_rfc3339
from emulator.demo.reread import rereader
from emulator.demo.skipped import Judgement, judge, missing_by_commit
from emulator.demo.wiretap import Wiretap
from emulator.errors import EmulatorFailedError, EmulatorNotFoundError
from emulator.official.launcher import HOST_VARIABLE, find_or_start
from emulator.scenario.scenario import Scenario
from emulator.scripted.server import ScriptedServer
from emulator.workload.journal import CommittedMod
from emulator.workload.sample import SampleDatabase
from emulator.workload.tables import Dialect
from emulator.workload.workload import Workload

CHURN_SECONDS = 2
_LEAST_SECONDS = 40
_STANDSTILL_SECONDS = 120
_SCRIPTED_LEAST_SECONDS = 12
_MODS_PER_SECOND = 500
_MODS_PER_TRANSACTION = 24
_TOLD_EVERY = 10.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Address:
    """The names of a database and its change stream, and where to begin to read it."""

    host: str
    project: str
    instance: str
    database: str
    change_stream: str
    start: str


class DemoSource(Protocol):
    """A change stream, and the truth of it."""

    @property
    def address(self) -> Address:
        """Where it is."""
        ...

    @property
    def story(self) -> str:
        """What it is, in a few words."""
        ...

    @property
    def committed(self) -> list[CommittedMod]:
        """What was committed, in commit order."""
        ...

    def judge(self, delivered: Iterable[int], errors: Sequence[str]) -> Judgement:
        """Tell what was skipped from what was lost, by delivered commit timestamps and logged errors."""
        ...

    def commit(self, mods: int, churn: int, crossed: Callable[[], int], say: Say) -> None:
        """Return once that many mods are committed, and that many splits, merges and moves crossed or given up."""
        ...


@contextmanager
def demo_source(dialect: Dialect, *, mods: int, churn: int, scripted: bool) -> Iterator[DemoSource]:
    """Give the official emulator's while the context is open, or the scripted one where there is no emulator.

    With `scripted` the emulator is not looked for. A scripted one has `mods` mods and `churn` splits, merges and moves
    at least.

    Raises:
        EmulatorNotFoundError: the environment names an emulator that does not answer.
        EmulatorFailedError: an emulator, or the scripted server, did not start.
    """
    with ExitStack() as stack:
        why = "as asked for"
        if not scripted:
            try:
                emulator = stack.enter_context(find_or_start(churn_seconds=CHURN_SECONDS))
            except EmulatorNotFoundError:
                if os.environ.get(HOST_VARIABLE):
                    raise
                why = "for neither a Spanner emulator nor a Docker engine is at hand"
            else:
                story = f"the Spanner emulator at {emulator.host} ({emulator.origin})"
                tap = stack.enter_context(Wiretap.before(emulator.host))
                yield _Official(SampleDatabase.create(emulator.host, dialect=dialect), tap, story)
                return
        yield stack.enter_context(_scripted(dialect, mods, churn, why))


class _Official:
    """A workload on the official emulator, whose partitions split, merge and move every few seconds.

    The reader's wire is tapped, for the emulator skips a transaction now and then.
    """

    def __init__(self, database: SampleDatabase, tap: Wiretap, story: str) -> None:
        self.story = story
        self.address = Address(
            tap.host, database.project, database.instance, database.database_id, database.change_stream, "now"
        )
        self._tap = tap
        self._reread = rereader(database.host, database.path, database.change_stream, database.dialect)
        self._workload = Workload(database, seed=1, average_size=40, rows_per_table=1000, run_length=20)

    @property
    def committed(self) -> list[CommittedMod]:
        """What the workload has committed."""
        return self._workload.committed

    def commit(self, mods: int, churn: int, crossed: Callable[[], int], say: Say) -> None:
        """Let the workload commit until there is enough of both, or no partition is crossed for two minutes."""
        say(f"committing at least {mods} mods; partitions split, merge and move every {CHURN_SECONDS} s or so")
        told = moved = time.monotonic()
        before = (True, 0)
        while True:
            few = len(self.committed) < mods
            self._workload.run(seconds=1.0, rate=mods / _LEAST_SECONDS * (1.1 if few else 0.05))
            now = time.monotonic()
            if now - told > _TOLD_EVERY:
                told = now
                say(f"  {len(self.committed)} mods committed, {crossed()} splits, merges and moves")
            if (state := (few, crossed())) != before:
                before, moved = state, now
            if len(self.committed) >= mods and (state[1] >= churn or now - moved > _STANDSTILL_SECONDS):
                return

    def judge(self, delivered: Iterable[int], errors: Sequence[str]) -> Judgement:
        """Ask the emulator once more for what is missing."""
        missing = missing_by_commit(self.committed, delivered)
        return judge(missing, self.committed, self._reread, errors=errors, tapped=self._tap.queries)


class _Scripted:
    """A scenario that unfolds by the clock on the wall."""

    def __init__(self, told: Scenario, host: str, story: str) -> None:
        self.story = story
        start = format_rfc3339(told.history.origin)
        self.address = Address(host, told.project, told.instance, told.database, told.change_stream, start)
        self.committed = told.committed
        self._horizon = told.history.horizon

    def commit(self, mods: int, churn: int, crossed: Callable[[], int], say: Say) -> None:
        """Wait until the scenario has come to its end."""
        say(f"a scripted history of {len(self.committed)} mods unfolds; partitions split, merge and move in it")
        while (left := (self._horizon - time.time_ns()) / SECOND) > 0:
            time.sleep(min(left, _TOLD_EVERY))
            so_far = sum(mod.commit_timestamp_ns <= time.time_ns() for mod in self.committed)
            say(f"  {so_far} mods committed, {crossed()} splits, merges and moves")

    def judge(self, delivered: Iterable[int], errors: Sequence[str]) -> Judgement:
        """The scripted server skips nothing: what is missing is lost."""
        return Judgement(lost=sum(missing_by_commit(self.committed, delivered).values()))


@contextmanager
def _scripted(dialect: Dialect, mods: int, churn: int, why: str) -> Iterator[DemoSource]:
    told = _told(dialect, mods, churn, origin=time.time_ns())
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_serve, args=(told, theirs), name="scripted Spanner", daemon=True)
    process.start()
    theirs.close()
    try:
        try:
            host = str(ours.recv())
        except EOFError as error:
            raise EmulatorFailedError("the scripted Spanner server did not start") from error
        yield _Scripted(told, host, f"a scripted Spanner server, {why}")
    finally:
        ours.close()
        process.join()


def _told(dialect: Dialect, mods: int, churn: int, *, origin: int) -> Scenario:
    """Draw a scenario with so many mods and partition events at least; a demo's is always drawn from the same seed."""
    transactions, events = mods // _MODS_PER_TRANSACTION + 1, 2 * churn
    seconds = max(_SCRIPTED_LEAST_SECONDS, min(_LEAST_SECONDS, mods // _MODS_PER_SECOND))
    while True:
        told = Scenario.generate(
            1,
            origin=origin,
            seconds=seconds,
            dialect=dialect,
            mode="IMMUTABLE_KEY_RANGE",
            transactions=transactions,
            average_size=40,
            churn=events,
            rows_per_table=1000,
        )
        if len(told.committed) >= mods and told.churn.total() >= churn:
            return told
        transactions, events = transactions * 5 // 4 + 1, events * 5 // 4 + 1


def _serve(told: Scenario, owner: Connection) -> None:
    """Serve the scenario, whose time is ours, until its owner closes the pipe or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ScriptedServer.started(told, begins=time.time_ns()) as server, suppress(EOFError, ConnectionError):
        owner.send(server.host)
        owner.recv()
