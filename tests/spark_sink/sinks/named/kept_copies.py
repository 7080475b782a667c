"""Sinks that are built from a kept spool, one after another, while there is no Spanner whose stream it is."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import NamedTuple, Protocol

from pyspark.sql import SparkSession

from connector.config import Config, validated
from connector.core.records import DataChangeRecord
from connector.core.timestamps import SECOND, format_rfc3339
from connector.spool import consumers
from connector.spool.backfill.completeness import incomplete_tables
from connector.spool.sink_start import start_of_sink
from spark_sink.run import Events, Sink, SinkEvent, delivery_of
from spark_sink.sinks.shared.beginning import begin
from tests.spark_sink.spools import SpoolMaker, record

TABLES = ("Singers", "Albums")
SOURCE = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
"""Of a Spanner that does not exist."""

Rows = dict[tuple[str, int], str]


class Copies(Protocol):
    """The destinations of sinks of one type, each with a name."""

    def sink(self, name: str) -> Mapping[str, object]:
        """The options of a sink, without its name and its start."""

    def rows(self, name: str) -> Rows:
        """The rows of a destination: the name, by table and key."""

    def remove(self, name: str) -> None:
        """Removes what a sink has written, as the guide says."""


class Written(NamedTuple):
    """A change of a row; ``value`` is None for a DELETE."""

    at: int
    table: str
    key: int
    value: str | None


class KeptHistory:
    """A spool with a random history of two tables; its transactions write both.

    Args:
        spool: an empty spool.
        seed: of the history.
    """

    def __init__(self, spool: SpoolMaker, seed: int) -> None:
        self._spool = spool
        self._random = Random(seed)
        self._there: Rows = {}
        self.written: list[Written] = []

    def seal(self, epochs: int) -> None:
        """Seals epochs of some transactions each, seconds apart."""
        for _ in range(epochs):
            first = self._spool.watermark + 1
            records = [one for number in range(6) for one in self._transaction(first + number * SECOND)]
            self._spool.seal(*records, high=first + 6 * SECOND)

    def _transaction(self, at: int) -> Iterator[DataChangeRecord]:
        for sequence, table in enumerate(TABLES):
            row = table, self._random.randrange(12)
            value = f"{table}{at}"
            kind = "INSERT" if row not in self._there else self._random.choice(["UPDATE", "UPDATE", "DELETE"])
            if kind == "DELETE":
                del self._there[row]
            else:
                self._there[row] = value
            self.written.append(Written(at, *row, None if kind == "DELETE" else value))
            yield record(at, [row[1]], table=table, values={"Name": value}, mod_type=kind, sequence=sequence)

    def rows(self, after: int = 0) -> Rows:
        """The rows that a destination has which began empty, and got what was committed after a timestamp."""
        found: Rows = {}
        for one in self.written:
            if one.at > after and one.value is None:
                found.pop((one.table, one.key), None)
            elif one.at > after and one.value is not None:
                found[one.table, one.key] = one.value
        return found


class KeptSinks:
    """The sinks of a spool.

    Args:
        spark: a session.
        spool: the spool.
        copies: their destinations.
    """

    def __init__(self, spark: SparkSession, spool: SpoolMaker, copies: Copies) -> None:
        self._spark = spark
        self._spool = spool
        self._copies = copies
        self._checkpoint = Path(spool.path).parent / "checkpoint"

    def deliver(self, name: str, start: str = "oldest") -> None:
        """Runs a sink until everything that is sealed is delivered."""
        config = self._config(name, start)
        begin(config)
        events: Events = SimpleQueue()
        events.put(SinkEvent.INPUT_ENDED)
        assert Sink(self._spark, config, delivery_of(config)).run(events)
        assert not list((self._checkpoint.parent / "dead").rglob("*.jsonl"))

    def forget(self, name: str) -> None:
        """Forgets a sink with all that it has written, as the guide says."""
        consumers.forget(self._spool.spool, name)
        shutil.rmtree(self._checkpoint / "sinks" / name)
        self._copies.remove(name)

    def _config(self, name: str, start: str) -> Config:
        sink = {"name": name, "start": start, "dead_letters": str(self._checkpoint.parent / "dead" / name)}
        return validated(
            {
                "source": SOURCE,
                "spool": {"path": self._spool.path, "keep": "7d"},
                "sink": {**sink, **self._copies.sink(name)},
                "spark": {"master": "local[2]", "checkpoint": str(self._checkpoint), "trigger": "100ms"},
            }
        )


def check_copies(spark: SparkSession, spool: SpoolMaker, copies: Copies, *, tables: Sequence[str] = TABLES) -> None:
    """Builds sinks from a kept spool, all of it or since a timestamp, and compares what they come to.

    The first is there while the spool is written. The second gets all of it at once, and the third since a timestamp
    within an epoch. Then the second is forgotten and built again since that timestamp.
    """
    history, sinks = KeptHistory(spool, seed=5), KeptSinks(spark, spool, copies)
    history.seal(3)
    sinks.deliver("first")
    history.seal(4)
    sinks.deliver("first")
    sinks.deliver("second")
    assert copies.rows("first") == copies.rows("second") == history.rows()

    middle = spool.spool.manifest(4)
    at = format_rfc3339((middle.watermark_low + middle.watermark_high) // 2)
    sinks.deliver("third", start=at)
    start = start_of_sink(spool.spool, "third")
    assert start is not None
    assert (start.epoch, start.after) == (3, middle.watermark_low)
    assert copies.rows("third") == history.rows(start.after) != history.rows()
    assert incomplete_tables(spool.spool, "third") == dict.fromkeys(tables, start.after)

    sinks.forget("second")
    sinks.deliver("second", start=at)
    assert copies.rows("second") == copies.rows("third")

    sinks.deliver("fourth", start="now")
    history.seal(1)
    sinks.deliver("fourth", start="now")
    assert copies.rows("fourth") == history.rows(spool.spool.manifest(8).watermark_low)
