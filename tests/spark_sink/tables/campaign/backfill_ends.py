"""The campaign of the ends of backfills: merged tables equal the source once the last backfill is done, and no later.

``python -m tests.spark_sink.tables.campaign.backfill_ends --sink delta --seeds 50``, in an environment whose PySpark
has a library of the format. Each seed has two tables with rows from before the stream, a backfill of each that ends at
another time, inserts, updates and deletes beside it, and a sink and a backfill that are killed at named points. It
ends in two ways: the sink ends first, as with ``source.end``, or it runs on and no further change comes. In the end
there is no deleted row. One session runs all: a process is what it keeps in memory, and a kill loses that.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from queue import SimpleQueue
from random import Random
from threading import Lock

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

import spark_sink
from connector.backfill.documents import Progress, TableProgress
from connector.backfill.records import record as record_backfill
from connector.backfill.records import spool_of, write_progress
from connector.backfill.sealing import BackfillWriter
from connector.config import validated
from connector.config.sections import SparkConfig, SpoolConfig
from connector.core.records import ColumnType, DataChangeRecord
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.envelope.snapshot_events import SnapshotEnvelope
from connector.spool.consumers import sink_lock
from connector.spool.manifest import BackfillPart
from connector.spool.segments import SegmentBuffer
from spark_sink.settling import Settlement, settle_without_sink
from spark_sink.tables.config import TablesConfig
from spark_sink.tables.delivery import TablesDelivery
from spark_sink.tables.kept_rows import KeptRows
from spark_sink.tables.libraries import spark_options
from spark_sink.tables.merge_into import TablesWriter
from tests.spark_sink.backfill.campaign.campaign import report
from tests.spark_sink.bigquery.deliveries.runs import SOURCE as CONFIGURED
from tests.spark_sink.bigquery.deliveries.scenarios import KilledError, killed_at
from tests.spark_sink.spools import KEY, NAME, SOURCE, SpoolMaker, record
from tests.spark_sink.tables.reading import target

TABLES = ("Singers", "Albums")
ENDS = ("source.end", "silence")
COLUMNS: tuple[ColumnType, ...] = (KEY, NAME)

_POINTS: list[tuple[type, str]] = [
    (TablesWriter, "write"),
    (TablesWriter, "_merge"),
    (TablesWriter, "remove_deleted"),
    (KeptRows, "_write"),
]
_ROWS, _KEYS, _EPOCHS, _MODS = 80, 120, 3, 80


class BackfillEnds:
    """One seed.

    Args:
        spark: a session with the library of the format.
        of_format: ``delta`` or ``iceberg``.
        end: one of :data:`ENDS`.
        folder: everything of the run.
        seed: of all that is random.

    Attributes:
        mods: how many were committed.
        kills: how many there were.
    """

    def __init__(self, spark: SparkSession, of_format: str, end: str, folder: Path, seed: int) -> None:
        self._spark = spark
        self._format = of_format
        self._end = end
        self._lake = folder / "lake"
        self._random = Random(seed)
        self._maker = SpoolMaker(folder / "spool")
        sink = {"type": "tables", "format": of_format, "path": str(self._lake)}
        self._config = validated({"source": CONFIGURED, "spool": {"path": self._maker.path}, "sink": sink})
        self._rows = {table: {key: f"old {key}" for key in range(_ROWS)} for table in TABLES}
        self._delivered = 0
        self.mods = self.kills = 0

    def run(self) -> str:
        """Returns what is wrong, or an empty text."""
        self._commit()
        self._record_backfill()
        epochs = 0
        sink = self._process()
        while epochs < _EPOCHS or (self._left and self._end == "silence"):
            step = self._random.choice(["commit", "deliver", "backfill"])
            if step == "commit" and epochs < _EPOCHS:
                self._commit()
                epochs += 1
            elif step == "deliver" and not self._killed(lambda one=sink: self._deliver(*one)):  # type: ignore[misc]
                sink = self._process()
            elif step == "backfill" and len(self._left) > (1 if epochs < _EPOCHS else 0):
                self._backfill()
        while not self._killed(lambda: self._deliver(*sink)):  # noqa: B023 - called at once
            sink = self._process()
        if self._end == "source.end":
            while self._left:
                self._backfill()
            self._killed(self._settle, most=1)
            self._settle()  # as another process of the backfill, or of the sink at its next start
        else:
            self._killed(lambda: self._look_on(sink[1]), most=1)
            self._look_on(self._process()[1])
        return self._wrong()

    def _process(self) -> tuple[TablesDelivery, Settlement]:
        """The sink of the stream, as a new process has it."""
        assert isinstance(self._config.sink, TablesConfig)
        delivery = TablesDelivery(self._config, self._config.sink)
        return delivery, Settlement(delivery, self._config)

    def _commit(self) -> None:
        """Seals an epoch with changes of both tables."""
        records: list[DataChangeRecord] = []
        at = self._maker.watermark + SECOND
        for table in TABLES:
            rows = self._rows[table]
            for number, key in enumerate(self._random.sample(range(_KEYS), _MODS // 2)):
                kind = "INSERT" if key not in rows else self._random.choice(["UPDATE", "DELETE"])
                self.mods += 1
                name = f"{kind} {self.mods}"
                records.append(record(at, [key], table=table, values={"Name": name}, mod_type=kind, sequence=number))
                if kind == "DELETE":
                    del rows[key]
                else:
                    rows[key] = name
        self._maker.seal(*records)

    def _record_backfill(self) -> None:
        """Records a backfill of the rows of now, and seals them in parts."""
        spool, at = self._maker.spool, self._maker.watermark
        schemas = {table: TableSchema.of(table, COLUMNS) for table in TABLES}
        document = record_backfill(
            spool,
            spool.header(),
            list(schemas.values()),
            timestamp=lambda: at,
            why="start",
            dialect="GOOGLE_STANDARD_SQL",
            now=at,
        )
        self._own = spool_of(spool, document.number)
        self._left: list[str] = []
        writer = BackfillWriter(self._own, self._own.header(), document)
        envelope = SnapshotEnvelope(SOURCE, stream_name=None, timestamp=at)
        for table, rows in deepcopy(self._rows).items():
            keys = sorted(rows)
            for part in (keys[::2], keys[1::2]):
                events = envelope.build(
                    pa.array([orjson.dumps({"Id": str(key)}).decode() for key in part], pa.string()),
                    pa.array([orjson.dumps({"Name": rows[key]}).decode() for key in part], pa.string()),
                    schemas[table],
                    schemas[table].key,
                    writer.epoch + 1,
                    at,
                )
                segment = SegmentBuffer()
                segment.append(events)
                file = segment.store(self._own.storage, f"segments/{writer.epoch + 1:020d}.arrow", first=at, last=at)
                writer.seal(BackfillPart(table=table, plan=1, partition=writer.epoch), [file], now=at)
                self._left.append(table)

    def _deliver(self, delivery: TablesDelivery, settlement: Settlement) -> None:
        """A micro-batch of the sink, and what it does around it."""
        with self._maker.spool.storage.locked(sink_lock("tables"), "taken"):
            settlement.look(self._spark)
            last = self._maker.spool.latest()
            if last > self._delivered:
                delivery.run(self._events(self._maker.path, self._delivered + 1, last))
                settlement.look(self._spark)
            self._delivered = last

    def _backfill(self) -> None:
        """Delivers the next part, by processes that are killed, and reports the progress."""
        epoch = self._own.latest() - len(self._left) + 1
        config = self._config.model_copy(update={"spool": SpoolConfig(path=self._own.path)})
        assert isinstance(config.sink, TablesConfig)
        options = config.sink
        while not self._killed(lambda: TablesDelivery(config, options).run(self._events(self._own.path, epoch, epoch))):
            pass
        self._left.pop(0)
        states = [TableProgress(table=one, state="reading" if one in self._left else "done") for one in TABLES]
        write_progress(self._own, Progress(updated=self._maker.watermark, tables=tuple(states)))
        if not self._left and self._end == "source.end":
            self._killed(self._settle, most=1)

    def _settle(self) -> None:
        """What the process of the backfill does in the end."""
        settle_without_sink(self._process()[0], self._config, self._spark)

    def _look_on(self, settlement: Settlement) -> None:
        """The sink for as long as no change comes."""
        with self._maker.spool.storage.locked(sink_lock("tables"), "taken"):
            events: SimpleQueue[str] = SimpleQueue()
            settlement._look_again(self._spark)
            events.put("the test has seen enough")
            settlement.awaited(events, self._spark, Lock())

    def _killed(self, run: Callable[[], object], most: int = 3) -> bool:
        """Runs a process that may be killed; whether it was not."""
        if self._random.random() < 0.5:
            run()
            return True
        point = self._random.choice(_POINTS)
        with (
            suppress(KilledError),
            killed_at(*point, call=self._random.randrange(1, most), after=self._random.random() < 0.5)
            if most > 1
            else killed_at(*point, call=1, after=self._random.random() < 0.5),
        ):
            run()
            return True
        self.kills += 1
        return False

    def _events(self, spool: str, first: int, last: int):  # type: ignore[no-untyped-def]
        events = self._spark.read.format("spanner-change-stream").option("spool", spool).load()
        return events.where(f"epoch BETWEEN {first} AND {last}")

    def _wrong(self) -> str:
        for table in TABLES:
            at = target(self._lake, self._format, table)
            self._spark.sql(f"REFRESH TABLE {at}")
            rows = self._spark.table(at).collect()
            deleted = sum(row["_is_deleted"] for row in rows)
            if deleted:
                return f"{table}: {deleted} deleted rows are left"
            if len(rows) != len(self._rows[table]) or {row["Id"]: row["Name"] for row in rows} != self._rows[table]:
                return f"{table}: {len(rows)} rows, not the {len(self._rows[table])} of the source"
        return ""


def session(of_format: str) -> SparkSession:
    """A session with the library of a format."""
    builder = SparkSession.builder.master("local[2]").appName("ends of backfills")
    sink = TablesConfig.model_validate({"format": of_format, "path": "/lake"})
    options = spark_options(sink, SparkConfig(config={"spark.driver.memory": "1g"}))
    for name, value in {
        **options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(name, value)
    found = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark_sink.register(found)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.tables.campaign.backfill_ends")
    parser.add_argument("--sink", choices=["delta", "iceberg"], default="delta")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    given = parser.parse_args()
    spark, failed = session(given.sink), 0
    for seed in range(given.seed, given.seed + given.seeds):
        for end in ENDS:
            started = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                one = BackfillEnds(spark, given.sink, end, Path(folder), seed)
                wrong = one.run()
            failed += bool(wrong)
            took = time.monotonic() - started
            report(
                f"{given.sink}, seed {seed}, {end}: {one.mods} mods, {one.kills} kills, {took:.0f} s: "
                f"{wrong or 'equal'}"
            )
    report(f"{given.sink}: {given.seeds} seeds, {failed} of {2 * given.seeds} runs are wrong")
    spark.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
