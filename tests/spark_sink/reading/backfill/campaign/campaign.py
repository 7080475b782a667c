"""One campaign: a database under load, a destination, kills, and the comparison in the end."""

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random

from proto.datetime_helpers import DatetimeWithNanoseconds

from connector.core.timestamps import format_rfc3339
from connector.spool.reading import Spool
from emulator import SampleDatabase
from tests.soak.process_tree import kill, process_tree
from tests.spark_sink.reading.backfill.campaign.destinations import Destination
from tests.spark_sink.reading.backfill.campaign.differences import Traces, differing
from tests.spark_sink.reading.backfill.campaign.lakes import LakeTables
from tests.spark_sink.reading.backfill.campaign.observer import Observer
from tests.spark_sink.reading.backfill.campaign.service import Service
from tests.spark_sink.reading.backfill.campaign.tables import Load, ddl, last_commit, load, rows_of_database

_PATIENCE = 3600.0
_KILLED = -9
_SMALL, _LARGE = (1, 1, 1, 4), (20, 50, 100, 200)
"""Writes of a transaction."""


class Campaign:
    """One database, one destination.

    Attributes:
        folder: everything of the run.
    """

    def __init__(self, sample: SampleDatabase, target: Destination, folder: Path, *, rows: int, seed: int) -> None:
        self._sample = sample
        self._target = target
        self.folder = folder
        self._rows = rows
        self._seed = seed
        self._service = Service(sample, folder, target.sink(), Random(seed))
        self._started = time.monotonic()

    def run(self, kills: int, writes: int = 0) -> str:
        """Creates and loads the tables, kills, and compares; returns what is wrong, or an empty text.

        Args:
            kills: how many.
            writes: of the load, at least so many; then its transactions are large.
        """
        sizes = _LARGE if writes else _SMALL
        database = self._sample.database
        self._sample.run_ddl(*ddl(self._sample.dialect))
        load(database, self._rows)
        self._report(f"{self._rows} rows loaded")
        observer = Observer(self._target.counts) if self._target.is_merged else None
        with observer or nullcontext():
            with Load(database, self._rows, Random(self._seed + 1), sizes, writes=writes) as written:
                wrong = self._kill(kills, lambda: written.writes >= writes)
            self._report(f"{written.writes} rows written in {written.transactions} transactions meanwhile")
            at = last_commit(database)
            end = str(at.rfc3339())
            if not wrong:
                wrong = self._end(end)
        if wrong:
            return wrong
        seen = ""
        if observer is not None:
            self._report(f"{observer.looks} looks saw {observer.rows} rows; {len(observer.back)} went back")
            seen = f"{len(observer.back)} rows went back: {observer.back[:3]}" if observer.back else ""
        expected, found = rows_of_database(database, at), self._target.rows()
        keys = differing(expected, found)
        self._report(f"{len(expected)} rows in Spanner, {len(found)} at the destination, {len(keys)} differ")
        if keys:
            traces = Traces(self._sample, self.folder, keys, end)
            traces.write(self.folder / "differences.json", expected, found)
            self._report(f"{len(traces.skipped)} commits are in no epoch, and a bounded re-read returns them")
            if not traces.are_skipped():
                return f"{len(keys)} rows differ: {keys[:5]}"
            self._report(f"the emulator has skipped the commits {traces.skipped}, which explain every difference")
        dead = [path for path in (self.folder / "dead").rglob("*") if path.is_file()]
        wrong = self._commits() if isinstance(self._target, LakeTables) and not keys else ""
        return seen or wrong or self._target.faults() or (f"{len(dead)} files of dead letters" if dead else "")

    def _commits(self) -> str:
        """Compares some commits of tables with Spanner as of the last epoch in them."""
        assert isinstance(self._target, LakeTables)
        spool = Spool.at(self.folder / "spool")
        compared = 0
        for table, epoch, rows in self._target.commits(spool.header().spool_id):
            at = DatetimeWithNanoseconds.from_rfc3339(format_rfc3339(spool.manifest(epoch).watermark_high))
            keys = differing(rows_of_database(self._sample.database, at, [table]), rows)
            if keys:
                return f"after epoch {epoch} {len(keys)} rows of {table} differ from Spanner's: {keys[:5]}"
            compared += 1
        self._report(f"{compared} commits hold what Spanner had as of their last epoch")
        return ""

    def _kill(self, kills: int, is_written: Callable[[], bool]) -> str:
        killed = self._service.killed
        while len(killed) < kills or not is_written():
            with self._service.run(None) as service:
                while service.process.poll() is None and len(killed) < kills:
                    self._service.await_progress(service)
                    if service.process.poll() is not None:
                        break
                    self._service.kill(service)
                    self._report(f"kill {len(killed)}: {killed[-1]}; {self._service.progress()}")
                    if killed[-1] in ("service", "daemon"):
                        service.process.wait()
                while not is_written() and service.process.poll() is None:
                    time.sleep(0.25)
                if len(killed) == kills:
                    kill(process_tree(service.process.pid))
                    service.process.wait()
                elif service.process.returncode != _KILLED:
                    return f"the service ended with code {service.process.returncode}: {service.said[-1000:]}"
        return ""

    def _end(self, end: str) -> str:
        with self._service.run(end) as service:
            done = service.wait(timeout=_PATIENCE)
        self._report(f"the last run ended with code {done.code}; {self._service.progress()}")
        return done.err[-2000:] if done.code else ""

    def _report(self, line: str) -> None:
        report(f"{time.monotonic() - self._started:.0f} s: {line}")


def report(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()
