"""The campaign of the ends of backfills: merged tables equal the source once the last backfill is done, and no later.

``python -m tests.spark_sink.sinks.tables.campaign.backfill_ends --sink delta --seeds 50``, in an environment whose
PySpark has a library of the format. Each seed has two tables with rows from before the stream, a backfill of each that
ends at another time, inserts, updates and deletes beside it, and a sink and a backfill that are killed at named points.
Of odd seeds tables cannot be written for a while, and their dead letters are replayed some time later. It ends in two
ways: the sink ends first, as with ``source.end``, or it runs on and no further change comes. In the end there is no
deleted row. One session runs all: a process is what it keeps in memory, and a kill loses that.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession

import spark_sink
from connector.config import validated
from connector.config.sections import SparkConfig, SpoolConfig
from connector.spool.backfill.documents import BackfillProgress, TableProgress
from connector.spool.backfill.records import write_progress
from connector.spool.consumers import record as record_consumer
from connector.spool.consumers import sink_lock
from spark_sink.dead_letters_command import replayed
from spark_sink.errors import TableError
from spark_sink.settling import Settlement, settle_without_sink
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.replayed_spools import held
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.delivery import TablesDelivery
from spark_sink.sinks.tables.kept_rows import KeptRows
from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sinks.tables.libraries import spark_options
from spark_sink.sinks.tables.merge_into import TablesWriter
from spark_sink.sinks.tables.replay import TablesReplay
from spark_sink.sinks.tables.stopped_tables import StoppedTables
from spark_sink.sources.changes.known_tables import TablesNow
from tests.java import java_options, spark_home
from tests.lake_libraries import INTERPRETED
from tests.spark_sink.reading.backfill.campaign.campaign import report
from tests.spark_sink.sinks.bigquery.deliveries.runs import SOURCE as CONFIGURED
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import KilledError, killed_at
from tests.spark_sink.sinks.tables.campaign.changing_source import TABLES, ChangingSource
from tests.spark_sink.sinks.tables.reading import sealed, target

ENDS = ("source.end", "silence")

Points = Sequence[tuple[type, str]]

POINTS: Points = (
    (TablesWriter, "write"),
    (TablesWriter, "_merge"),
    (TablesWriter, "remove_deleted"),
    (KeptRows, "_write"),
    (StoppedTables, "_write"),
    (DeadLetters, "replace"),
)

HUNDREDS_OF_ROWS: Mapping[str, str] = {
    **INTERPRETED,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Options for tables of some hundred rows, whose statements are planned as those of larger ones."""


class BackfillEnds:
    """One seed.

    Args:
        spark: a session with the library of the format.
        of_format: ``delta`` or ``iceberg``.
        end: one of :data:`ENDS`.
        folder: everything of the run.
        seed: of all that is random.
        source: what is replicated.
        mode: that of the tables.

    Attributes:
        source: what is replicated.
        kills: how many there were.
        letters: dead letters that were replayed.
        kind: the kind of its source, for the report.
        points: where processes are killed.
        chance: that a process is killed.
        epochs: how many are committed beside the backfill.
    """

    kind = ""
    points: ClassVar[Points] = POINTS
    chance = 0.5
    epochs = 3

    def __init__(
        self,
        spark: SparkSession,
        of_format: str,
        end: str,
        folder: Path,
        seed: int,
        source: Callable[[Path, Random], ChangingSource] = ChangingSource,
        mode: str = "merge",
    ) -> None:
        self._spark = spark
        self._format = of_format
        self._end = end
        self._lake = folder / "lake"
        self._random = Random(seed)
        self.source = source(folder / "spool", self._random)
        self._maker = self.source.maker
        sink = {"type": "tables", "format": of_format, "path": str(self._lake), "mode": mode}
        sink["dead_letters"] = str(folder / "letters")
        self._config = validated({"source": CONFIGURED, "spool": {"path": self._maker.path}, "sink": sink})
        self._delivered = 0
        self._stops = bool(seed % 2)
        self._stopped: set[str] = set()
        self.kills = self.letters = 0

    def run(self) -> str:
        """Returns what is wrong, or an empty text."""
        with self.refusing():
            return self._run()

    def _run(self) -> str:
        self.begin()
        committed = 0
        sink = self._process()
        steps = ["commit", "deliver", "backfill", *(["stop", "mend"] if self._stops else [])]
        while committed < self.epochs or (self.source.left and self._end == "silence"):
            step = self._random.choice(steps)
            if step == "commit" and committed < self.epochs:
                self.source.commit()
                committed += 1
            elif step == "deliver" and not self._killed(lambda one=sink: self._deliver(*one)):  # type: ignore[misc]
                sink = self._process()
            elif step == "backfill" and len(self.source.left) > (1 if committed < self.epochs else 0):
                self._backfill()
            elif step == "stop":
                self.stop(self._random.choice(TABLES))
            elif step == "mend":
                self.mend()
                if self._random.random() < 0.5:
                    self.replay()
                    sink = self._process()
        while not self._killed(lambda: self._deliver(*sink)):  # noqa: B023 - called at once
            sink = self._process()
        if self._end == "source.end":
            while self.source.left:
                self._backfill()
            self._killed(self._settle, most=1)
            self._settle()  # as another process of the backfill, or of the sink at its next start
        else:
            self._killed(lambda: self._look_on(sink[1]), most=1)
            self._look_on(self._process()[1])
        if self._stops:
            self.mend()
            self.replay()
        return self.wrong()

    def begin(self) -> None:
        """Commits the first epoch, and records a backfill of what is there then."""
        self.source.commit()
        self.source.record_backfill()

    def stop(self, table: str) -> None:
        """From now on a table cannot be written, within :meth:`refusing`."""
        self._stopped.add(table)

    def mend(self) -> None:
        """From now on every table can be written."""
        self._stopped.clear()

    def deliver(self) -> None:
        """A process of the sink delivers what is sealed, and does what is due."""
        self._deliver(*self._process())

    def deliver_backfill(self) -> None:
        """Delivers all of the backfill that is left."""
        while self.source.left:
            self._backfill()

    def replay(self) -> None:
        """Replays all dead letters that the sink will not write itself, by processes that are killed."""
        while not self._killed(self._replay):
            pass

    def _replay(self) -> None:
        config = self._config
        assert isinstance(config.sink, TablesConfig)
        store = DeadLetters(config.sink.dead_letters)
        with held(self._maker.spool, config) as spools:
            replay = TablesReplay(config, config.sink, self._maker.spool, spools, self._spark)
            done = replayed(store, store.files(), replay, [])
            self.letters += done.sent
            assert not done.rejected, store.files()
            replay.settle()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Tables that are stopped cannot be written meanwhile."""
        original = TablesWriter.table

        def table(writer: TablesWriter, name: str, *now: TablesNow) -> LakeTable:
            if name in self._stopped:
                raise TableError(f"{name} is to be mended first")
            return original(writer, name, *now)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TablesWriter, "table", table)
            yield

    def _process(self) -> tuple[TablesDelivery, Settlement]:
        """The sink of the stream, as a new process has it."""
        assert isinstance(self._config.sink, TablesConfig)
        delivery = TablesDelivery(self._config, self._config.sink, Feed.of(self._config))
        return delivery, Settlement(delivery, self._config)

    def _deliver(self, delivery: TablesDelivery, settlement: Settlement) -> None:
        """A micro-batch of the sink, and what it does around it."""
        with self._maker.spool.storage.locked(sink_lock("tables"), "taken"):
            settlement.look(self._spark)
            last = self._maker.spool.latest()
            if last > self._delivered:
                delivery.run(sealed(self._spark, self._maker.spool, self._delivered + 1, last))
                settlement.look(self._spark)
                record_consumer(self._maker.spool, "tables", last, now=self._maker.watermark)
            self._delivered = last

    def _backfill(self) -> None:
        """Delivers the next part, by processes that are killed, and reports the progress."""
        epoch = self.source.backfill.latest() - len(self.source.left) + 1
        config = self._config.model_copy(update={"spool": SpoolConfig(path=self.source.backfill.path)})
        assert isinstance(config.sink, TablesConfig)
        options = config.sink
        while not self._killed(
            lambda: TablesDelivery(config, options, Feed.at(config.spool.path)).run(
                sealed(self._spark, self.source.backfill, epoch, epoch)
            )
        ):
            pass
        self.source.left.pop(0)
        record_consumer(self.source.backfill, "tables", epoch, now=self._maker.watermark)
        states = [TableProgress(table=one, state="reading" if one in self.source.left else "done") for one in TABLES]
        write_progress(self.source.backfill, BackfillProgress(updated=self._maker.watermark, tables=tuple(states)))
        if not self.source.left and self._end == "source.end":
            self._killed(self._settle, most=1)

    def _settle(self) -> None:
        """The end of the process of the backfill."""
        settle_without_sink(self._process()[0], self._config, self._spark)

    def _look_on(self, settlement: Settlement) -> None:
        """The sink for as long as no change comes."""
        with self._maker.spool.storage.locked(sink_lock("tables"), "taken"):
            settlement.look(self._spark)

    def _killed(self, run: Callable[[], object], most: int = 3) -> bool:
        """Runs a process that may be killed; whether it was not."""
        if self._random.random() < 1 - self.chance:
            run()
            return True
        point = self._random.choice(self.points)
        call = self._random.randrange(1, most) if most > 1 else 1
        with suppress(KilledError), killed_at(*point, call=call, after=self._random.random() < 0.5):
            run()
            return True
        self.kills += 1
        return False

    def wrong(self) -> str:
        """The differences between the tables and the source; empty if there are none."""
        targets = {table: target(self._lake, self._format, table) for table in TABLES}
        return next(filter(None, (_wrong(self._spark, targets[one], self.source.rows[one]) for one in TABLES)), "")


def _wrong(spark: SparkSession, table: str, expected: Mapping[int, str]) -> str:
    spark.sql(f"REFRESH TABLE {table}")
    rows = spark.table(table).collect()
    if deleted := sum(row["_is_deleted"] for row in rows):
        return f"{table}: {deleted} deleted rows are left"
    if len(rows) != len(expected) or {row["Id"]: row["Name"] for row in rows} != expected:
        return f"{table}: {len(rows)} rows, not the {len(expected)} of the source"
    return ""


def session(of_format: str) -> SparkSession:
    """A session with the library of a format."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())
    os.environ.setdefault("SPARK_HOME", spark_home())
    builder = SparkSession.builder.master("local[2]").appName("ends of backfills")
    sink = TablesConfig.model_validate({"format": of_format, "path": "/lake"})
    options = spark_options(sink, SparkConfig(config={"spark.driver.memory": "1g"}))
    for name, value in {
        **options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        **HUNDREDS_OF_ROWS,
        "spark.databricks.delta.snapshotPartitions": "1",
    }.items():
        builder = builder.config(name, value)
    found = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark_sink.register(found)
    return found


def run_seeds(prog: str, campaign: type[BackfillEnds], ends_of: Callable[[int], Sequence[str]]) -> int:
    """Runs the seeds that the command line names, each with its ends; returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}")
    parser.add_argument("--sink", choices=["delta", "iceberg"], default="delta")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    given = parser.parse_args()
    spark, failed, runs = session(given.sink), 0, 0
    for seed in range(given.seed, given.seed + given.seeds):
        for end in ends_of(seed):
            started = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                one = campaign(spark, given.sink, end, Path(folder), seed)
                wrong = one.run()
            runs += 1
            failed += bool(wrong)
            took = time.monotonic() - started
            report(
                f"{given.sink}, seed {seed}, {end}{one.kind}: {one.source.mods} mods, {one.kills} kills,"
                f" {one.letters} dead letters, {took:.0f} s: {wrong or 'equal'}"
            )
    report(f"{given.sink}: {given.seeds} seeds, {failed} of {runs} runs are wrong")
    spark.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_seeds("tests.spark_sink.sinks.tables.campaign.backfill_ends", BackfillEnds, lambda _: ENDS))
