"""One campaign: a reader beside a load, and a sink into tables or files, which is killed again and again.

The reader is not killed here, as it is in the backfill's campaign: an emulator that has many changes which nobody has
read becomes slower than any reader.
"""

import time
from pathlib import Path
from random import Random

from proto.datetime_helpers import DatetimeWithNanoseconds

from connector.core.timestamps import format_rfc3339, parse
from connector.spool.consumers import find, register
from connector.spool.reading import Spool
from emulator import SampleDatabase
from spark_sink.sinks.tables.lake_table import CUTS
from spark_sink.sinks.tables.maintenance.record import MaintenanceRecord, TableRecord
from tests.integration.commands import Background, configuration
from tests.soak.process_tree import kill, process_tree, victims_of
from tests.spark_sink.reading.backfill.campaign.campaign import report
from tests.spark_sink.reading.backfill.campaign.differences import Traces, differing
from tests.spark_sink.reading.backfill.campaign.lakes import LakeTables
from tests.spark_sink.reading.backfill.campaign.tables import Load, ddl, last_commit, load, rows_of_database, tables
from tests.spark_sink.sinks.tables.campaign.parquet_files import ParquetFiles

PARENTS = 2
"""Tables with an interleaved one each: every one of them costs a micro-batch a commit."""

_PATIENCE = 1800.0
_LIFE = 2.0, 40.0
"""Seconds to the kill, from the start of a query or from what it has delivered first."""

_DELIVERING = 0.5
"""The share of the queries that deliver something before they are killed."""

_SIZES = (1, 10, 50, 100, 200)
"""Writes of a transaction."""


class Campaign:
    """One database, one lake.

    Args:
        sample: the database.
        lake: the tables.
        folder: everything of the run.
        seed: of all that is random.
    """

    def __init__(self, sample: SampleDatabase, lake: LakeTables | ParquetFiles, folder: Path, seed: int) -> None:
        self._sample = sample
        self._lake = lake
        self._folder = folder
        self._seed = seed
        self._random = Random(seed)
        self._spool = Spool.at(folder / "spool")
        self._started = time.monotonic()
        self._killed: list[str] = []

    def run(self, kills: int, mods: int, rows: int) -> str:
        """Returns what is wrong, or an empty text."""
        sample = self._sample
        sample.run_ddl(*ddl(sample.dialect, PARENTS))
        config = self._config(format_rfc3339(time.time_ns()))
        with Background("read", config, log=self._folder / "read.log") as reader:
            reader.until(lambda: self._watermark() > 0, "an epoch is sealed", timeout=60)
            register(self._spool, "comparison", now=time.time_ns())  # whose manifests are needed in the end
            load(sample.database, rows, PARENTS)
            self._report(f"{rows} rows loaded")
            with Load(sample.database, rows, Random(self._seed + 1), _SIZES, PARENTS, mods - rows) as written:
                while len(self._killed) < kills or rows + written.writes < mods:
                    self._one_run(config, kills)
                    assert reader.process.poll() is None, reader.said[-1000:]
            self._report(f"{rows + written.writes} mods in {written.transactions} transactions")
            at = last_commit(sample.database)
            reader.until(lambda: self._watermark() >= parse(at.rfc3339()), "all is sealed", timeout=_PATIENCE)
            self._report(f"{self._spool.latest()} epochs are sealed")
            with Background("run", config, "--sink-only", log=self._folder / "last.log") as sink:
                sink.until(self._is_delivered, "all is delivered", timeout=_PATIENCE)
                done = sink.stop(timeout=300)
            self._report(f"the last run ended with code {done.code}")
            reader.stop()
        return done.err[-2000:] if done.code else self._compared(at)

    def _compared(self, at: DatetimeWithNanoseconds) -> str:
        if isinstance(self._lake, ParquetFiles):
            changes, difference = self._lake.compared(self._spool)
            self._report(difference or f"{changes} changes are in the spool, each once in the files")
            return difference
        expected, found = rows_of_database(self._sample.database, at, tables(PARENTS)), self._lake.rows()
        keys = differing(expected, found)
        self._report(f"{len(expected)} rows in Spanner, {len(found)} in the tables, {len(keys)} differ")
        if keys:
            traces = Traces(self._sample, self._folder, keys, str(at.rfc3339()))
            traces.write(self._folder / "differences.json", expected, found)
            if not traces.are_skipped():
                return f"{len(keys)} rows differ: {keys[:5]}"
            self._report(f"the emulator has skipped the commits {traces.skipped}, which explain every difference")
            return self._lake.faults()
        compared = 0
        for table, epoch, rows in self._lake.commits(self._spool.header().spool_id):
            then = DatetimeWithNanoseconds.from_rfc3339(format_rfc3339(self._spool.manifest(epoch).watermark_high))
            if wrong := differing(rows_of_database(self._sample.database, then, [table]), rows):
                return f"after epoch {epoch} {len(wrong)} rows of {table} differ from Spanner's: {wrong[:5]}"
            compared += 1
        self._report(f"{compared} commits hold what Spanner had as of their last epoch")
        self._report(self._lake.maintained())
        return self._lake.faults()

    def _one_run(self, config: Path, kills: int) -> None:
        """Runs the sink until something of it is killed; without kills left, for a while."""
        number = len(self._killed) + 1
        self._age()
        with Background("run", config, "--sink-only", log=self._folder / f"run-{number}.log") as sink:
            sink.await_log("ready: ", timeout=_PATIENCE)
            before, delivers = self._delivered(), self._random.random() < _DELIVERING
            if delivers:
                sink.until(lambda: self._delivered() > before, "epochs are delivered", timeout=_PATIENCE)
            time.sleep(self._random.uniform(*_LIFE))
            if len(self._killed) < kills:
                self._kill(sink)
                self._report(f"kill {number}: {self._killed[-1]}; epoch {self._delivered()} of {self._spool.latest()}")
            kill(process_tree(sink.process.pid))
            sink.process.wait()

    def _age(self) -> None:
        """Makes the sink remove old versions when it next looks at a table, as it does once a day."""
        record = MaintenanceRecord(self._spool, "tables")
        for table in (*tables(PARENTS), CUTS):
            if record.of(table) is not None:
                record.put(table, TableRecord(since=0))

    def _kill(self, sink: Background) -> None:
        victims = victims_of(sink.process.pid)
        victim = self._random.choice(sorted(victims))
        kill(victims[victim])
        self._killed.append(victim)
        time.sleep(self._random.uniform(0, 2))  # what is left of the sink may still commit

    def _config(self, start: str) -> Path:
        return configuration(
            self._folder,
            self._sample,
            source={"start": start, "tables": {"include": ["Parent*", "Child*"]}},
            spool={"seal_interval": "1s"},
            sink=self._lake.sink(),
            spark={
                "master": "local[2]",
                "checkpoint": str(self._folder / "checkpoint"),
                "trigger": "5s",
                "config": {"spark.driver.memory": "1g", **self._lake.spark_config},
            },
        )

    def _watermark(self) -> int:
        latest = self._spool.latest()
        return self._spool.manifest(latest).watermark_high if latest else 0

    def _delivered(self) -> int:
        try:
            consumer = find(self._spool, "tables")
        except FileNotFoundError:
            return 0
        return consumer.epoch if consumer else 0

    def _is_delivered(self) -> bool:
        return self._delivered() >= self._spool.latest()

    def _report(self, line: str) -> None:
        report(f"{time.monotonic() - self._started:.0f} s: {line}")
