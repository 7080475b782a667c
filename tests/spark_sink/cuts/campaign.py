"""The campaign of published cuts: readers that join tables as of each cut see no half transaction, whatever is killed.

``python -m tests.spark_sink.cuts.campaign --sink delta --cuts 1000 --kills 20``, in an environment whose PySpark has a
library of the format. A sink delivers transfers between accounts in two tables, and is killed at random points. A
reader beside it sums all balances as of each cut soon after that is published; those that are left when the sink ends
are read then. It also sums the newest versions of both tables: that is wrong at least once, or the campaign shows
nothing. One session runs the sink: a process is what it keeps in memory, and a kill loses that.
"""

import argparse
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random

from pyspark.sql import DataFrame, SparkSession

import spark_sink
from connector.config import validated
from connector.spool.consumers import record as record_consumer
from spark_sink.publishing import Publication
from spark_sink.session import free_unused
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.started_batches import StartedBatch, StartedBatches
from spark_sink.sinks.tables.config import Format, TableOptions, TablesConfig
from spark_sink.sinks.tables.cuts.cut_records import CutRecords
from spark_sink.sinks.tables.delivery import TablesDelivery
from spark_sink.sinks.tables.formats.stores import STORES
from spark_sink.sinks.tables.lake_table import CUTS
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.cuts.bank import SUM, TABLES, Bank
from tests.spark_sink.reading.backfill.campaign.campaign import report
from tests.spark_sink.sinks.bigquery.deliveries.runs import SOURCE
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import KilledError, killed_at
from tests.spark_sink.sinks.tables.campaign.backfill_ends import session
from tests.spark_sink.sinks.tables.reading import epochs

_POINTS: list[tuple[type, str, int]] = [
    (TablesWriter, "_merge", 2),  # one of two tables is committed
    (TablesWriter, "_merge", 2),
    (CutRecords, "versions", 1),
    (CutRecords, "publish", 1),
]
"""The methods at whose nth call a process is killed."""

_PAUSE = 0.5
"""Seconds between two looks of the reader."""


class Reader:
    """Reads tables beside the sink, in a session of its own.

    Attributes:
        sums: the sums of all balances as of each cut that was read, by its timestamp.
        wrong: the sums of the newest versions of both tables that are wrong.
        beside: how many cuts it has read beside the sink.
    """

    def __init__(self, spark: SparkSession, of_format: Format, lake: Path) -> None:
        self._spark = spark.newSession()
        self._format = of_format
        self._lake = lake
        self._store = STORES[of_format](self._spark, TableOptions(of_format, str(lake), None, "merge", "apply"), "")
        self.sums: dict[str, set[int]] = {}
        self.wrong: list[int] = []
        self.beside = 0

    def read(self, timestamp: str) -> None:
        """Reads the tables as of the newest cut at or before a timestamp."""
        found = spark_sink.as_of(self._spark, path=self._lake, format=self._format, timestamp=timestamp)
        checking, savings = (found[table] for table in TABLES)
        total = checking.unionByName(savings).agg({"Balance": "sum"}).collect()[0][0]
        self.sums.setdefault(found.timestamp, set()).add(total)

    def read_newest(self) -> None:
        """Reads the newest versions of both tables, one after the other."""
        tables = [self._table(table) for table in TABLES]
        found = tables[0].unionByName(tables[1]).agg({"Balance": "sum"}).collect()[0][0]
        self.wrong += [found] if found != SUM else []

    def read_all(self) -> int:
        """Reads each cut that was not read yet; returns how many."""
        published = {row["timestamp"] for row in self._table(CUTS).select("timestamp").collect()}
        unread = sorted(published - self.sums.keys())
        for timestamp in unread:
            self.read(timestamp)
        return len(unread)

    def read_until(self, stop: threading.Event) -> None:
        """Reads each cut, and between them the newest versions, until it is stopped."""
        while not stop.wait(_PAUSE):
            self.beside += self.read_all()
            self.read_newest()

    def _table(self, name: str) -> DataFrame:
        table = self._store.target(name)
        self._store.refresh(table)
        return self._spark.table(table)


class Campaign:
    """One bank and one lake.

    Args:
        spark: a session with the library of the format.
        of_format: ``delta`` or ``iceberg``.
        folder: everything of the run.
        seed: of all that is random.

    Attributes:
        bank: what is replicated.
        config: the sink's.
        kills: how many there were.
        reader: reads beside the sink.
    """

    def __init__(self, spark: SparkSession, of_format: Format, folder: Path, seed: int) -> None:
        self._spark = spark
        self._random = Random(seed)
        self.bank = Bank(folder / "spool", self._random)
        lake = folder / "lake"
        sink = {"type": "tables", "format": of_format, "path": str(lake), "dead_letters": str(folder / "letters")}
        self.config = validated({"source": SOURCE, "spool": {"path": self.bank.maker.path}, "sink": sink})
        self._delivered = 0
        self.kills = 0
        self.reader = Reader(spark, of_format, lake)

    def run(self, cuts: int, kills: int) -> str:
        """Returns what is wrong, or an empty text."""
        process = self.process()
        self.deliver(*process)
        stop = threading.Event()
        with ThreadPoolExecutor(1, "reader") as readers:
            reading = readers.submit(self.reader.read_until, stop)
            try:
                for number in range(1, cuts):
                    self.bank.seal(self._random.randint(1, 8))
                    if self.kills < kills and self._random.random() < (kills - self.kills) / (cuts - number):
                        self._kill(process)
                        self.reader.read_newest()
                        process = self.process()
                    self.deliver(*process)
                    if number % 50 == 0:
                        report(f"{number} cuts, {self.kills} kills, {self.reader.beside} cuts read beside the sink")
                    if reading.done():
                        break
            finally:
                stop.set()
            reading.result()
        self.reader.read_all()
        published = list(process[0].cut_store(self._spark).cuts())  # type: ignore[union-attr]
        return self._wrong(cuts, len(published))

    def _wrong(self, cuts: int, published: int) -> str:
        sums = self.reader.sums
        if published != cuts or len(sums) != cuts:
            return f"{published} cuts are published and {len(sums)} read, not {cuts}"
        if wrong := {cut: found for cut, found in sums.items() if found != {SUM}}:
            return f"the sum is {SUM}, and as of {len(wrong)} cuts another: {wrong}"
        if not self.reader.beside:
            return "no cut was read beside the sink"
        return "" if self.reader.wrong else "the sum of the newest versions was never wrong: nothing is shown"

    def process(self) -> tuple[TablesDelivery, Publication]:
        """The sink, as a new process has it."""
        assert isinstance(self.config.sink, TablesConfig)
        delivery = TablesDelivery(self.config, self.config.sink, Feed.of(self.config))
        return delivery, Publication(delivery)

    def deliver(self, delivery: TablesDelivery, publication: Publication) -> None:
        """Delivers what is sealed in a micro-batch, with what the sink does around it."""
        spool, first = self.bank.maker.spool, self._delivered + 1
        started = StartedBatches(spool, "tables")
        known = started.at(first)
        last = known.last if known is not None and known.pinned else spool.latest()
        if known is None or not known.pinned:
            batch = StartedBatch(first=first, last=last, pinned="options", at=spool.manifest(last).identity)
            started.begin(batch, done=self._delivered)
        publication.before_batch()
        delivery.run(epochs(self._spark, self.bank.maker, first, last))
        publication.after_batch(self._spark)
        record_consumer(spool, "tables", last, now=self.bank.maker.watermark)
        free_unused()
        self._delivered = last

    def _kill(self, process: tuple[TablesDelivery, Publication]) -> None:
        """A micro-batch that is killed."""
        owner, method, call = self._random.choice(_POINTS)
        with suppress(KilledError), killed_at(owner, method, call=call, after=self._random.random() < 0.25):
            self.deliver(*process)
        self.kills += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.cuts.campaign")
    parser.add_argument("--sink", choices=["delta", "iceberg"], default="delta")
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    spark, started = session(given.sink), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        one = Campaign(spark, given.sink, Path(folder), given.seed)
        wrong = one.run(given.cuts, given.kills)
    found = one.reader
    report(
        f"{given.sink}, seed {given.seed}: {one.bank.transactions} transactions, {one.kills} kills,"
        f" {len(found.sums)} cuts read, {found.beside} of them beside the sink, {len(found.wrong)} of the newest wrong,"
        f" {time.monotonic() - started:.0f} s: {wrong or 'every sum as of a cut is right'}"
    )
    spark.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
