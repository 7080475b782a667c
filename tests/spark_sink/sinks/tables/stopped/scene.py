"""A sink of tables without Spark: in place of the destination is the rule by which it takes epochs."""

import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from connector.core.timestamps import SECOND
from connector.spool.consumers import record as record_consumer
from connector.spool.late_store import LateRanges
from connector.spool.reading import Spool
from spark_sink.errors import TableError
from spark_sink.publishing import _Incompleteness
from spark_sink.sinks.shared.replayed_spools import record_left
from spark_sink.sinks.tables.config import TableOptions
from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sinks.tables.merge_into import Merged, Written
from spark_sink.sinks.tables.rejected.rejected_rows import RejectedRows
from tests.spark_sink.sinks.tables.campaign.by_hand import Sink
from tests.spark_sink.spools import START, record


@dataclass
class Destination:
    """The tables: a commit has the epochs after ``applied``, which is then the last epoch of its micro-batch.

    Attributes:
        applied: the last epoch of each table.
        rows: the table and the epoch of each row.
        failing: tables that cannot be written.
        fails_after_commit: tables whose commits succeed, and are then said to have failed.
        commits: how often each table was written.
    """

    applied: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    rows: list[tuple[str, int]] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    fails_after_commit: set[str] = field(default_factory=set)
    commits: list[str] = field(default_factory=list)

    def writer(
        self, _: object, options: TableOptions, *__: object, rejected: RejectedRows | None = None, **___: object
    ) -> "Writer":
        return Writer(self, options.mode, rejected)

    def epochs(self, table: str = "Singers") -> list[int]:
        return [epoch for name, epoch in self.rows if name == table]


def events(spool: Spool, first: int, last: int) -> DataFrame:
    """The rows of some epochs, as this writer takes them."""
    files = [file for one in spool.manifests(first, last) for file in one.files]
    return cast("DataFrame", pa.Table.from_batches([rows for file in files for rows in spool.batches(file)]))


class Writer:
    """In place of :class:`spark_sink.sinks.tables.merge_into.TablesWriter`."""

    def __init__(self, destination: Destination, mode: str, rejected: RejectedRows | None) -> None:
        self._to = destination
        self._rejected = rejected
        self.mode = mode

    def tables(self) -> list[str]:
        return ["Albums", "Singers"]

    def table(self, name: str) -> SimpleNamespace:
        if name in self._to.failing:
            raise TableError("another type")
        return SimpleNamespace(source=name)

    def applied(self, _: object, name: str) -> int:
        self.table(name)
        return self._to.applied[name]

    def remove_deleted(self, _: object, name: str) -> None:
        """There are none."""

    def write(self, events: pa.Table, *, is_stopped: Callable[[str], bool] = lambda _: False, **_: object) -> Written:
        counts = {each["values"]: each["counts"] for each in pc.value_counts(events.column("object")).to_pylist()}
        first, last = pc.min_max(events.column("epoch")).as_py().values()
        stopped = {}
        for name in counts:
            if is_stopped(name):
                continue
            if name in self._to.failing:
                stopped[name] = TableError("another type")
                continue
            if self._rejected is not None:
                self._rejected.opened(cast("LakeTable", self.table(name)), cast("SparkSession", None))
            self._write(name, events.filter(pc.equal(events.column("object"), name)), last)
            if name in self._to.fails_after_commit:
                stopped[name] = TableError("no answer")
        return Written(Merged(first, last, counts), stopped)

    def _write(self, name: str, events: pa.Table, last: int) -> None:
        epochs = events.column("epoch").to_pylist()
        if epochs[-1] > self._to.applied[name]:
            self._to.rows += [(name, epoch) for epoch in epochs if epoch > self._to.applied[name]]
            self._to.applied[name] = last
            self._to.commits.append(name)


class Scene(Sink):
    """A sink whose spool has six epochs: each has a row of Singers and one of Albums, but for the last: Albums only."""

    def __init__(self, folder: Path, destination: Destination, **sink: str) -> None:
        self.to = destination
        session = cast("SparkSession", SimpleNamespace(createDataFrame=lambda table: table))
        super().__init__(session, folder, **sink)
        for at in range(1, 6):
            self.maker.seal(*(record(START + at * SECOND, [at], table=name) for name in ("Singers", "Albums")))
        self.maker.seal(record(START + 6 * SECOND, [6], table="Albums"))

    def run(self, first: int, last: int | None = None) -> str:
        """A micro-batch that is not recorded as done."""
        return self.delivery.run(events(self.spool, first, last or first))

    def deliver(self, first: int, last: int | None = None) -> str:
        said = self.run(first, last)
        at = self.spool.manifest(last or first).identity
        record_consumer(self.spool, "tables", last or first, now=START, at=at)
        return said

    def incomplete(self, epoch: int) -> dict[str, str]:
        """The reasons of a cut at the end of an epoch."""
        now = _Incompleteness.now(self.delivery, LateRanges(self.spool))
        return dict(now.of(["Albums", "Singers"], self.spool.manifest(epoch).watermark_high))

    def letters_away(self) -> None:
        """Moves the dead letters away, as on a volume that is not mounted, and starts the sink."""
        Path(self.store.root).rename(self.path.with_name("aside"))
        self.restart()

    def letters_back(self) -> None:
        self.path.with_name("aside").rename(self.store.root)
        self.restart()

    def letters_removed(self) -> None:
        """Removes the dead letters by hand, and has the command record that."""
        shutil.rmtree(self.store.root)
        record_left(self.spool, "tables", self.store, [])
        self.restart()

    def overtake(self) -> None:
        """Singers stops at epoch 2, and has epoch 4 without its dead letters of 2 and 3."""
        self.deliver(1)
        self.to.failing = {"Singers"}
        self.deliver(2)
        self.deliver(3)
        self.to.failing.clear()
        self.letters_away()
        self.deliver(4)
        self.letters_back()
