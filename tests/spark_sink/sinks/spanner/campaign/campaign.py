"""One campaign: two databases, a bank in one, `spanner-cdc run` into the other, kills and lost answers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import grpc
import orjson

from connector.core.timestamps import SECOND, format_rfc3339
from connector.spool.backfill.records import backfills
from connector.spool.reading import Spool
from emulator import SampleDatabase
from tests.faults.proxy import Call, CallFault, proxied
from tests.integration.commands import Background, configuration, run
from tests.soak.process_tree import kill, process_tree, victims_of
from tests.spark_sink.reading.backfill.campaign.campaign import report
from tests.spark_sink.sinks.spanner.campaign.bank import DDL, PROOF, Bank, Observer, rows_of

_PATIENCE = 1800.0
_KILLED = -9
_ACCOUNTS = 1000


class Campaign:
    """Two databases of one emulator.

    Args:
        source: a sample database, whose change stream watches all tables.
        replica: another one.
        folder: everything of the run.
        mode: of the sink.
        seed: of all that is random.
        backfill: whether a backfill brings what is there when the service starts, or the stream has all.
        accounts: of the bank.
    """

    def __init__(
        self,
        source: SampleDatabase,
        replica: SampleDatabase,
        folder: Path,
        mode: str,
        seed: int,
        *,
        backfill: bool = False,
        accounts: int = _ACCOUNTS,
    ) -> None:
        self._source = source
        self._replica = replica
        self._folder = folder
        self._mode = mode
        self._backfill = backfill
        self._accounts = accounts
        self._random = Random(seed)
        self._seed = seed
        self._starts = 0
        self._started = time.monotonic()
        self._killed: list[str] = []

    def run(self, kills: int, mods: int) -> str:
        """Returns what is wrong, or an empty text."""
        dialect = self._source.dialect
        self._source.run_ddl(*DDL[dialect])
        self._replica.run_ddl(*DDL[dialect], PROOF[dialect])
        start = format_rfc3339(time.time_ns())
        bank = Bank(self._source.database, self._accounts, mods, Random(self._seed + 1))
        with (
            proxied(self._source.host) as proxy,
            Observer(self._replica.database, dialect, self._has_all) as observer,
        ):
            bank.open()
            with bank:
                while self._backfill and bank.mods < mods // 4 and bank.is_running():
                    time.sleep(0.25)
                for wrong in self._kills(kills, mods, bank, proxy.host, start, proxy.inject):
                    return wrong
            self._report(f"{bank.number} transactions with {bank.mods} mods")
            end = format_rfc3339(time.time_ns())
            with self._service(proxy.host, start, end) as service:
                done = service.wait(timeout=_PATIENCE)
            self._report(f"the last run ended with code {done.code}; {len(proxy.calls)} calls went to the destination")
            if done.code:
                return done.err[-2000:]
            time.sleep(1)
        return self._compared(bank, observer, start)

    def _compared(self, bank: Bank, observer: Observer, start: str) -> str:
        self._report(
            f"{observer.looks} looks at {len(observer.numbers)} states, {len(observer.halves)} in the middle of a"
            f" transaction, {len(observer.back)} went back"
        )
        expected, found = rows_of(self._source.database), rows_of(self._replica.database)
        differing = [key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)]
        self._report(f"{len(expected)} rows in the source, {len(found)} in the destination, {len(differing)} differ")
        if differing:
            return (
                f"{len(differing)} rows differ: {[(key, expected.get(key), found.get(key)) for key in differing[:5]]}"
            )
        dead = [path for path in (self._folder / "dead").rglob("*") if path.is_file()]
        if dead or observer.back:
            return f"{len(dead)} files of dead letters; went back: {observer.back[:3]}"
        numbers = self._proof(start)
        self._report(f"the destination's change stream reports {len(numbers)} states of the row of Latest")
        if sorted(numbers) != numbers or numbers[-1] != bank.number:
            return "the row of Latest went back"
        if self._backfill:  # its rows may be applied again
            numbers = numbers[numbers.count(numbers[0]) - 1 :]
        if self._mode == "transactions":
            if observer.halves:
                return f"half a transaction was seen: {observer.halves[:3]}"
            if len(set(numbers)) != len(numbers):
                return "a transaction was applied twice"
        return ""

    def _has_all(self) -> bool:
        """True if the destination has had a state of the source: before a backfill is done it has parts of one."""
        return not self._backfill or any(one.progress.is_done for one in backfills(Spool.at(self._folder / "spool")))

    def _proof(self, start: str) -> list[int]:
        replica, end = self._replica, format_rfc3339(time.time_ns() - SECOND // 10)
        names = ("--project", replica.project, "--instance", replica.instance, "--database", replica.database_id)
        bounds = ("--start", start, "--end", end)
        done = run("tail", *names, "--change-stream", "Proof", *bounds, host=replica.host, timeout=300)
        assert done.code == 0, done.err
        return [int(str(orjson.loads(line)["payload"]["Number"])) for line in done.out.splitlines()]

    def _kills(self, kills: int, mods: int, bank: Bank, host: str, start: str, inject: object) -> Iterator[str]:
        while len(self._killed) < kills or bank.mods < mods:
            with self._service(host, start, None) as service:
                while service.process.poll() is None and len(self._killed) < kills:
                    assert callable(inject)
                    inject(*self._faults())
                    self._await_progress(service)
                    if service.process.poll() is not None:
                        break
                    self._kill(service)
                    self._report(f"kill {len(self._killed)}: {self._killed[-1]}; {bank.mods} mods; {self._position()}")
                    if self._killed[-1] in ("service", "daemon"):
                        service.process.wait()
                while bank.mods < mods and bank.is_running() and service.process.poll() is None:
                    time.sleep(0.25)
                if not bank.is_running():
                    yield "the bank has ended"
                    return
                if len(self._killed) == kills:
                    kill(process_tree(service.process.pid))
                    service.process.wait()
                elif service.process.returncode != _KILLED:
                    yield f"the service ended with code {service.process.returncode}: {service.said[-1000:]}"
                    return

    def _faults(self) -> list[CallFault]:
        """Commits that fail, before they take effect or after it."""

        def is_commit(call: Call) -> bool:
            return call.method.endswith("/Commit")

        codes = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.DEADLINE_EXCEEDED)
        return [
            CallFault(self._random.choice(codes), "a fault", matches=is_commit, after=self._random.randrange(2))
            for _ in range(self._random.randrange(3))
        ]

    def _service(self, host: str, start: str, end: str | None) -> Background:
        self._starts += 1
        tables = {"include": ["Accounts", "Pockets", "Latest"]}
        path = configuration(
            self._folder,
            self._source,
            source={
                "start": "now" if self._backfill else start,
                "backfill": self._backfill,
                "tables": tables,
                **({"end": end} if end else {}),
            },
            spool={"seal_interval": "1s"},
            sink={
                "type": "spanner",
                "database": self._replica.database_id,
                "emulator_host": host,
                "mode": self._mode,
                "dead_letters": str(self._folder / "dead"),
            },
            spark={
                "master": "local[2]",
                "checkpoint": str(self._folder / "checkpoint"),
                "config": {"spark.driver.memory": "768m"},
            },
        )
        return Background("run", path, log=self._folder / f"run-{self._starts}.log")

    def _position(self) -> tuple[int, int]:
        """The position up to which the stream and a backfill are applied together."""
        with self._replica.database.snapshot() as snapshot:
            try:
                rows = list(snapshot.execute_sql("SELECT SUM(epoch), SUM(events) FROM spanner_cdc_progress"))
            except Exception:  # noqa: BLE001 - there is no such table yet
                return 0, 0
        return int(rows[0][0] or 0), int(rows[0][1] or 0)

    def _await_progress(self, service: Background) -> None:
        """Waits until this run has applied something, and then a little more."""
        before, deadline = self._position(), time.monotonic() + _PATIENCE
        while service.process.poll() is None and self._position() == before:
            assert time.monotonic() < deadline, f"nothing is applied: {service.said[-1000:]}"
            time.sleep(0.3)
        time.sleep(self._random.uniform(0, 3))

    def _kill(self, service: Background) -> None:
        victims = victims_of(service.process.pid) | {"daemon": [service.process.pid]}
        victim = self._random.choice(sorted(victims))
        kill(victims[victim])
        self._killed.append(victim)

    def _report(self, line: str) -> None:
        report(f"{time.monotonic() - self._started:.0f} s: {line}")


@contextmanager
def databases(host: str, dialect: str, capture: str) -> Iterator[tuple[SampleDatabase, SampleDatabase]]:
    """A source and a replica, which are dropped at the end."""
    source = SampleDatabase.create(host, dialect=dialect, value_capture_type=capture)
    replica = SampleDatabase.create(host, dialect=dialect)
    try:
        yield source, replica
    finally:
        source.drop()
        replica.drop()
