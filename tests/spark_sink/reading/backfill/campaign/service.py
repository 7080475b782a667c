"""The service of the campaign: `spanner-cdc run` with a backfill, started again after each kill."""

import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

import yaml

from connector.spool import consumers
from connector.spool.backfill.records import RecordedBackfill, find
from connector.spool.reading import Spool
from emulator import SampleDatabase
from tests.integration.commands import Background
from tests.soak.process_tree import command, is_jvm, is_worker, kill, process_tree

WITNESS = "witness"
"""A consumer that is never done with anything: the spool of the stream keeps every epoch, to find out what was lost."""

_LONGEST_WAIT = 150.0


def configured(sample: SampleDatabase, folder: Path, sink: Mapping[str, object], end: str | None = None) -> Path:
    """Writes the configuration of a service with a backfill, whose files are all in one folder; returns its path."""
    source = {
        "project": sample.project,
        "instance": sample.instance,
        "database": sample.database_id,
        "change_stream": sample.change_stream,
        "emulator_host": sample.host,
        "backfill": True,
        "tables": {"include": ["Parent*", "Child*"]},
    }
    node = {
        "source": {**source, **({"end": end} if end else {})},
        "spool": {"path": str(folder / "spool")},
        "sink": {**sink, "dead_letters": str(folder / "dead")},
        "spark": {
            "master": "local[2]",
            "checkpoint": str(folder / "checkpoint"),
            "config": {"spark.driver.memory": "768m"},
        },
        "status": {"port": 0},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(node))
    return path


class Service:
    """One spool, some runs, some kills.

    Attributes:
        killed: what was killed, in order.
    """

    def __init__(self, sample: SampleDatabase, folder: Path, sink: dict[str, object], random: Random) -> None:
        self._sample = sample
        self._folder = folder
        self._sink = sink
        self._random = random
        self._starts = 0
        self._spool = Spool.at(folder / "spool")
        self._is_witnessed = False
        self.killed: list[str] = []

    def run(self, end: str | None) -> Background:
        self._starts += 1
        return Background(
            "run", configured(self._sample, self._folder, self._sink, end), log=self._folder / f"run-{self._starts}.log"
        )

    def await_progress(self, service: Background) -> None:
        """Waits until this run has sealed or delivered something, or for a while, and then a little more."""
        deadline = time.monotonic() + _LONGEST_WAIT
        before: tuple[int, int] | None = None
        while time.monotonic() < deadline and service.process.poll() is None:
            if before is None and self._is_ready(service):
                before = self._reached()
            if before is not None and self._reached() != before:
                break
            time.sleep(0.25)
        time.sleep(self._random.uniform(0, 6))

    def _is_ready(self, service: Background) -> bool:
        """True if the run delivers the backfill itself: what a killed one has started may still end its work."""
        backfill = self._backfill()
        return backfill is not None and (backfill.progress.is_done or f"{backfill.spool.path} goes to" in service.said)

    def _reached(self) -> tuple[int, int]:
        """The sealed and delivered epochs of the backfill; once it is done, of the stream."""
        backfill = self._backfill()
        if backfill is None:
            return 0, 0
        spool = self._spool if backfill.progress.is_done else backfill.spool
        delivered = sum(known.epoch for known in consumers.consumers(spool) if known.consumer != WITNESS)
        return backfill.spool.latest(), delivered

    def _backfill(self) -> RecordedBackfill | None:
        try:
            self._spool.header()
            if not self._is_witnessed:
                consumers.register(self._spool, WITNESS, now=time.time_ns())
                self._is_witnessed = True
            return find(self._spool, 1)
        except FileNotFoundError:
            return None

    def kill(self, service: Background) -> None:
        """Kills one of: the service with all that it has started, the daemon alone, a driver with its JVM, a JVM, a
        worker of Spark. A driver and what belongs to it are mostly the backfill's."""
        tree = process_tree(service.process.pid)
        drivers = [process for process in tree if " spark_sink " in command(process) and not is_worker(process)]
        of_backfill = [process for process in drivers if "--backfill" in command(process)]
        if of_backfill and self._random.random() < 0.75:
            drivers = of_backfill
        victims = {"service": tree, "daemon": [service.process.pid]}
        if drivers:
            driver = self._random.choice(drivers)
            name = "backfill's" if driver in of_backfill else "sink's"
            below = process_tree(driver)
            victims[f"{name} driver"] = below
            victims |= {f"{name} JVM": [one] for one in below if is_jvm(one)}
            victims |= {f"{name} worker": [one] for one in below if is_worker(one)}
        victim = self._random.choice(sorted(victims))
        kill(victims[victim])
        self.killed.append(victim)

    def progress(self) -> str:
        """The progress, in a few words."""
        backfill = self._backfill()
        if backfill is None:
            return "nothing is recorded"
        states = [table.state for table in backfill.progress.tables]
        return f"{backfill.spool.latest()} partitions sealed, {states.count('done')} of {len(states)} tables done"
