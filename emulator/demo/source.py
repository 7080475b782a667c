"""The change stream that the demo replicates: a workload on the official emulator, or else a scripted Spanner server.

The scripted server runs in a separate process, so that it does not slow down the demo's. It serves a scenario in real
time. The demo has the same scenario, and so knows everything that is committed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

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
_STALL_SECONDS = 120
_SCRIPTED_LEAST_SECONDS = 12
_MODS_PER_SECOND = 500
_MODS_PER_TRANSACTION = 24
_PROGRESS_SECONDS = 10.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Address:
    """The names of a database and its change stream, and the timestamp to start reading at."""

    host: str
    project: str
    instance: str
    database: str
    change_stream: str
    start: str


@contextmanager
def demo_source(dialect: Dialect, *, mods: int, churn: int, scripted: bool) -> Iterator[DemoSource]:
    """Opens a change stream on the official emulator, or on the scripted server if there is no emulator.

    With `scripted`, no emulator is searched for. The scripted stream has at least `mods` mods and `churn` splits,
    merges and moves.

    Raises:
        EmulatorNotFoundError: the environment names an emulator that does not answer.
        EmulatorFailedError: an emulator, or the scripted server, did not start.
    """
    with ExitStack() as stack:
        why = "as requested"
        if not scripted:
            try:
                emulator = stack.enter_context(find_or_start(churn_seconds=CHURN_SECONDS))
            except EmulatorNotFoundError:
                if os.environ.get(HOST_VARIABLE):
                    raise
                why = "because neither a Spanner emulator nor a Docker engine was found"
            else:
                description = f"the Spanner emulator at {emulator.host} ({emulator.origin})"
                tap = stack.enter_context(Wiretap.before(emulator.host))
                yield OfficialSource(SampleDatabase.create(emulator.host, dialect=dialect), tap, description)
                return
        yield stack.enter_context(_scripted_source(dialect, mods, churn, why))


class OfficialSource:
    """A workload on the official emulator, whose partitions split, merge and move every few seconds.

    A wiretap records what the reader receives, because the emulator skips a transaction now and then.
    """

    def __init__(self, database: SampleDatabase, tap: Wiretap, description: str) -> None:
        self.description = description
        self.address = Address(
            tap.host, database.project, database.instance, database.database_id, database.change_stream, "now"
        )
        self._tap = tap
        self._reread = rereader(database.host, database.path, database.change_stream, database.dialect)
        self._workload = Workload(database, seed=1, average_size=40, rows_per_table=1000, run_length=20)

    @property
    def committed(self) -> list[CommittedMod]:
        """The mods that the workload has committed, in commit order."""
        return self._workload.committed

    def commit(self, mods: int, churn: int, crossed: Callable[[], int], say: Say) -> None:
        """Commits until there are `mods` mods, and `churn` splits, merges and moves or none for two minutes.

        `crossed` returns how many the reader has crossed; `say` prints a line of progress.
        """
        say(f"committing at least {mods} mods; partitions split, merge and move every {CHURN_SECONDS} s or so")
        printed = moved = time.monotonic()
        before = (True, 0)
        while True:
            few = len(self.committed) < mods
            self._workload.run(seconds=1.0, rate=mods / _LEAST_SECONDS * (1.1 if few else 0.05))
            now = time.monotonic()
            if now - printed > _PROGRESS_SECONDS:
                printed = now
                say(f"  {len(self.committed)} mods committed, {crossed()} splits, merges and moves")
            if (state := (few, crossed())) != before:
                before, moved = state, now
            if len(self.committed) >= mods and (state[1] >= churn or now - moved > _STALL_SECONDS):
                return

    def judge(self, delivered: Iterable[int], errors: Sequence[str]) -> Judgement:
        """Decides which missing mods the emulator skipped and which are lost, by reading them once more.

        `delivered` has the commit timestamp of each delivered event, `errors` the errors that the reader logged.
        """
        missing = missing_by_commit(self.committed, delivered)
        return judge(missing, self.committed, self._reread, errors=errors, tapped=self._tap.queries)


class ScriptedSource:
    """A scenario that a scripted server plays in real time."""

    def __init__(self, scenario: Scenario, host: str, description: str) -> None:
        self.description = description
        start = format_rfc3339(scenario.history.origin)
        self.address = Address(
            host, scenario.project, scenario.instance, scenario.database, scenario.change_stream, start
        )
        self.committed = scenario.committed
        self._horizon = scenario.history.horizon

    def commit(self, mods: int, churn: int, crossed: Callable[[], int], say: Say) -> None:
        """Waits for the end of the scenario."""
        say(f"a scripted server commits {len(self.committed)} mods; partitions split, merge and move")
        while (left := (self._horizon - time.time_ns()) / SECOND) > 0:
            time.sleep(min(left, _PROGRESS_SECONDS))
            so_far = sum(mod.commit_timestamp_ns <= time.time_ns() for mod in self.committed)
            say(f"  {so_far} mods committed, {crossed()} splits, merges and moves")

    def judge(self, delivered: Iterable[int], errors: Sequence[str]) -> Judgement:
        """Counts everything missing as lost: the scripted server skips nothing."""
        return Judgement(lost=sum(missing_by_commit(self.committed, delivered).values()))


DemoSource = OfficialSource | ScriptedSource
"""A change stream, and everything that is committed to it; `description` says what the demo runs against."""


@contextmanager
def _scripted_source(dialect: Dialect, mods: int, churn: int, why: str) -> Iterator[DemoSource]:
    scenario = _scenario(dialect, mods, churn, origin=time.time_ns())
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_serve, args=(scenario, theirs), name="scripted Spanner", daemon=True)
    process.start()
    theirs.close()
    try:
        try:
            host = str(ours.recv())
        except EOFError as error:
            raise EmulatorFailedError("the scripted Spanner server did not start") from error
        yield ScriptedSource(scenario, host, f"a scripted Spanner server, {why}")
    finally:
        ours.close()
        process.join()


def _scenario(dialect: Dialect, mods: int, churn: int, *, origin: int) -> Scenario:
    """Draws a scenario with at least `mods` mods and `churn` partition events, always from the same seed."""
    transactions, events = mods // _MODS_PER_TRANSACTION + 1, 2 * churn
    seconds = max(_SCRIPTED_LEAST_SECONDS, min(_LEAST_SECONDS, mods // _MODS_PER_SECOND))
    while True:
        scenario = Scenario.generate(
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
        if len(scenario.committed) >= mods and scenario.churn.total() >= churn:
            return scenario
        transactions, events = transactions * 5 // 4 + 1, events * 5 // 4 + 1


def _serve(scenario: Scenario, owner: Connection) -> None:
    """Serves the scenario in real time until the owner closes the pipe or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server, suppress(EOFError, ConnectionError):
        owner.send(server.host)
        owner.recv()
