"""The published cuts of a sink in the table ``_cuts`` of its destination.

Each publication appends one row in one commit. From time to time the sink that writes removes its rows that are older
than ``sink.cuts.keep``, and makes one file of the small ones: at a commit a second there are 86,400 a day. It goes by
the files that are there, because a process that a scheduler starts for a few micro-batches ends long before that is
due. The former files of Delta are removed by the maintenance of tables.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_sink.sinks.shared.published_cut import CutStore, PublishedCut
from spark_sink.sinks.tables.config import TableOptions
from spark_sink.sinks.tables.cuts.cuts_table import COLUMNS, cut_of, deletes_of, row_of
from spark_sink.sinks.tables.cuts.delta_versions import DeltaVersions
from spark_sink.sinks.tables.cuts.iceberg_versions import IcebergVersions
from spark_sink.sinks.tables.cuts.versions import Versions
from spark_sink.sinks.tables.formats.delta import DeltaStore
from spark_sink.sinks.tables.formats.iceberg import IcebergStore
from spark_sink.sinks.tables.formats.session import writing
from spark_sink.sinks.tables.formats.store import TableStore
from spark_sink.sinks.tables.formats.stores import STORES
from spark_sink.sinks.tables.lake_table import CUTS, create_statement, table_name
from spark_sink.sinks.tables.maintenance.upkeeps import upkeep_of
from spark_sink.sinks.tables.table_faults import is_missing, tried

_PUBLICATIONS = 100
"""The number of publications, and so of files, after which old rows are removed, and the small files made one."""

_PROPERTIES: Mapping[str, Mapping[str, str]] = {
    "delta": {
        "delta.checkpointInterval": "50",
        "delta.deletedFileRetentionDuration": "interval 1 day",
        "delta.logRetentionDuration": "interval 1 day",
    },
    "iceberg": {},
}
"""Properties of :data:`CUTS`, by format, beside those of all tables: a commit of one row is to leave little behind."""


class CutRecords(CutStore):
    """The published cuts of a sink in its destination.

    Args:
        spark: a session with the library of the format.
        options: where the tables are.
        spool_id: the spool's.
        sink: the sink's name; others may publish in the same place.
        keep: the time for which cuts are kept, in nanoseconds.
        now: Unix nanoseconds.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: TableOptions,
        spool_id: str,
        sink: str,
        keep: int,
        *,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self._spark = spark
        self._options = options
        self._spool_id = spool_id
        self._sink = sink
        self._keep = keep
        self._now = now
        self._store = STORES[options.format](spark, options, "")
        self._target = self._store.target(CUTS)
        self._versions = _versions_of(spark, self._store, keep)
        self._is_there = False
        self._since = 0

    def newest(self) -> PublishedCut | None:
        """By the epoch; of two records of one epoch the later counts."""
        found = self._rows("ORDER BY epoch DESC, published_at DESC LIMIT 1")
        return found[0] if found else None

    def cuts(self) -> Sequence[PublishedCut]:
        """Those whose rows are there."""
        by_epoch = {cut.epoch: cut for cut in self._rows("ORDER BY epoch, published_at")}
        return list(by_epoch.values())

    def versions(self, tables: Sequence[str]) -> Mapping[str, str]:
        """As the format names them: a version of Delta, a snapshot's id of Iceberg."""
        names = {table_name(table): table for table in tables}
        return {names[name]: str(version) for name, version in self._versions.now(list(names)).items()}

    def publish(self, cut: PublishedCut) -> None:
        """Appends a row."""
        versions = {table_name(name): int(one.version) for name, one in cut.tables.items() if one.version}
        deletes = deletes_of(self._options.mode, self._options.deletes)
        with writing(self._spark):
            if not self._is_there:
                properties = {**self._store.created(), **_PROPERTIES[self._options.format]}
                self._spark.sql(create_statement(self._target, self._options.format, COLUMNS, properties))
                self._is_there = True
                self._since = upkeep_of(self._spark, self._options).files(CUTS).data
            self._versions.keep(versions, cut.epoch, self._now() // 1_000_000)
            row = self._spark.createDataFrame(row_of(cut, self._sink, deletes))
            tried(CUTS, row.coalesce(1).writeTo(self._target).append)
            self._since += 1
            if self._since >= _PUBLICATIONS:
                self._since = 0
                tried(CUTS, self._remove_old, cut)

    def _remove_old(self, newest: PublishedCut) -> None:
        """Removes the rows of the sink that are older than the time for which cuts are kept, and not the newest one."""
        oldest = min(self._now() - self._keep, newest.published_at) // 1000
        self._spark.sql(f"DELETE FROM {self._target} WHERE {self._own()} AND published_at < timestamp_micros({oldest})")
        self._versions.compact(CUTS)

    def _rows(self, order: str) -> list[PublishedCut]:
        try:
            self._store.refresh(self._target)
            found = self._spark.sql(
                "SELECT timestamp, epoch, spool_id, unix_micros(published_at) AS published_at, tables"
                f" FROM {self._target} WHERE {self._own()} {order}"
            ).collect()
        except AnalysisException as error:
            if not is_missing(error):
                raise
            return []  # no cut was published yet
        return [cut_of(row.asDict()) for row in found]

    def _own(self) -> str:
        """A condition for the rows of the sink: neither text has a quote."""
        return f"spool_id = '{self._spool_id}' AND sink = '{self._sink}'"


def _versions_of(spark: SparkSession, store: TableStore, keep: int) -> Versions:
    if isinstance(store, DeltaStore):
        return DeltaVersions(spark, store)
    assert isinstance(store, IcebergStore)
    return IcebergVersions(store, keep // 1_000_000)
