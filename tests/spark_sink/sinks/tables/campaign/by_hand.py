"""A sink of tables that is run by hand, and what a test does to it."""

from pathlib import Path

from pyspark.sql import SparkSession

from connector.config import validated
from connector.config.loading import Config
from connector.spool.consumers import record as record_consumer
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of
from spark_sink.dead_letters_command import Replayed, replayed
from spark_sink.errors import TableError
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.replayed_spools import held, record_left
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.delivery import TablesDelivery
from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sinks.tables.merge_into import TablesWriter
from spark_sink.sinks.tables.replay import TablesReplay
from spark_sink.sources.changes.known_tables import TablesNow
from tests.spark_sink.sinks.bigquery.deliveries.runs import SOURCE
from tests.spark_sink.sinks.tables.reading import sealed
from tests.spark_sink.spools import START, SpoolMaker


class Sink:
    """A sink of Singers and Albums, run by hand: a run is a process."""

    def __init__(self, lake: SparkSession, folder: Path, **sink: str) -> None:
        self.lake = lake
        self.maker = SpoolMaker(folder / "spool")
        self.path = folder / "lake"
        section = {"type": "tables", "path": str(self.path), "dead_letters": str(folder / "letters"), **sink}
        self.config: Config = validated({"source": SOURCE, "spool": {"path": self.maker.path}, "sink": section})
        self.restart()

    @property
    def spool(self) -> Spool:
        return self.maker.spool

    @property
    def store(self) -> DeadLetters:
        return DeadLetters(self.config.sink.dead_letters)

    @property
    def stopped(self) -> dict[str, str]:
        return report_of(self.spool, "tables").stopped

    def restart(self) -> None:
        assert isinstance(self.config.sink, TablesConfig)
        self.delivery = TablesDelivery(self.config, self.config.sink, Feed.of(self.config))

    def deliver(self, first: int, last: int | None = None) -> str:
        """A micro-batch of these epochs, which is recorded as done."""
        said = self.delivery.run(sealed(self.lake, self.spool, first, last or first))
        record_consumer(self.spool, "tables", last or first, now=START)
        return said

    def replay(self) -> Replayed:
        """The command, with the session of the tests."""
        assert isinstance(self.config.sink, TablesConfig)
        with held(self.spool, self.config) as spools:
            replay = TablesReplay(self.config, self.config.sink, self.spool, spools, self.lake)
            done = replayed(self.store, self.store.files(), replay, [], in_order=True)
            replay.settle()
            record_left(self.spool, "tables", self.store, self.store.files())
        self.restart()
        return done

    def letters(self) -> int:
        return sum(file.count for file in self.store.files())


def appended(sink: Sink, table: str) -> list[tuple[int, int]]:
    """The keys and epochs of all rows."""
    rows = sink.lake.read.option("mergeSchema", "true").parquet(str(sink.path / table)).collect()
    return sorted((row["Id"], row["_epoch"]) for row in rows)


def stop_singers(writer: TablesWriter, name: str, *now: TablesNow) -> LakeTable:
    if name == "Singers":
        raise TableError("it is to be mended first")
    return _TABLE(writer, name, *now)


_TABLE = TablesWriter.table
