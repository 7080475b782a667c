"""One campaign: a database under load, a destination, kills, and the comparison in the end."""

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from random import Random

from emulator import SampleDatabase
from tests.soak.process_tree import kill, process_tree
from tests.spark_sink.backfill.campaign.destinations import Destination
from tests.spark_sink.backfill.campaign.differences import Traces, differing
from tests.spark_sink.backfill.campaign.observer import Observer
from tests.spark_sink.backfill.campaign.service import Service
from tests.spark_sink.backfill.campaign.tables import Load, ddl, last_commit, load, rows_of_database

_PATIENCE = 3600.0
_KILLED = -9


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

    def run(self, kills: int) -> str:
        """Creates and loads the tables, kills, and compares; returns what is wrong, or an empty text."""
        database = self._sample.database
        self._sample.run_ddl(*ddl(self._sample.dialect))
        load(database, self._rows)
        self._report(f"{self._rows} rows loaded")
        observer = Observer(self._target.counts) if self._target.is_merged else None
        with observer or nullcontext():
            with Load(database, self._rows, Random(self._seed + 1)) as writes:
                wrong = self._kill(kills)
            self._report(f"{writes.transactions} transactions committed meanwhile")
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
        return seen or self._target.faults() or (f"{len(dead)} files of dead letters" if dead else "")

    def _kill(self, kills: int) -> str:
        killed = self._service.killed
        while len(killed) < kills:
            with self._service.run(None) as service:
                while service.process.poll() is None and len(killed) < kills:
                    self._service.await_progress(service)
                    if service.process.poll() is not None:
                        break
                    self._service.kill(service)
                    self._report(f"kill {len(killed)}: {killed[-1]}; {self._service.progress()}")
                    if killed[-1] in ("service", "daemon"):
                        service.process.wait()
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
