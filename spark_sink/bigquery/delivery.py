"""The delivery into BigQuery: what :mod:`spark_sink.bigquery.source` is told, and what the driver does after its tasks.

Where rows are appended, the driver commits the tasks' streams, each table's together; where they are loaded and merged,
it merges the tables that the tasks loaded, in the order of the parts. Each has a name that depends on the spool and the
epoch alone, so that a micro-batch which is done again does nothing twice.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from pyspark.sql import DataFrame, Row
from pyspark.sql.datasource import DataSource

from connector.config.loading import Config
from connector.core.filters import RecordFilter
from connector.core.timestamps import SECOND
from connector.spool.consumers import find
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, tell
from connector.storage.locations import absolute
from spark_sink.bigquery import source as bigquery_source
from spark_sink.bigquery.client import BigQueryClient
from spark_sink.bigquery.commit_log import Ledger, entry_path
from spark_sink.bigquery.config import CONSUMER, BigQueryConfig
from spark_sink.bigquery.loads import Load, from_text
from spark_sink.bigquery.pace import loaded, release
from spark_sink.bigquery.parts import PinnedOptions, letters_of
from spark_sink.bigquery.quotas import Pacing
from spark_sink.bigquery.row_merger import merge_statement
from spark_sink.bigquery.table import MERGE, MERGE_LOAD, BigQueryTable, BigQueryTarget, bigquery_table
from spark_sink.bigquery.writer import BigQueryWriter
from spark_sink.errors import SinkError
from spark_sink.sink.dead_letters import DeadLetters
from spark_sink.sink.delivery import last_of

_PART_BYTES, _PART_BYTES_OF_A_LOAD = 32 * 1024 * 1024, 128 * 1024 * 1024
"""Bytes of segments in a part; what is loaded and merged is cut by tables rather, so that each is merged once."""

_AT_A_TIME = 8
"""Tables whose streams are committed, or that are merged into, at the same time."""


_WORTH_TELLING = 10
"""Seconds that changes gather for."""

_FORGETTING = 100
"""Micro-batches after which entries of the ledger are removed that are not needed any more."""


class BigQueryDelivery:
    """Delivers into tables of BigQuery.

    Args:
        config: the configuration.
        sink: its sink.
    """

    consumer = CONSUMER

    def __init__(self, config: Config, sink: BigQueryConfig) -> None:
        self._config = config
        self._sink = sink
        self._pinned = options_of(config, sink)
        self._target = sink.target(config.source)
        self._spool = Spool.at(absolute(config.spool.path))
        tables = config.source.tables
        self._keeps = RecordFilter(tables.include, tables.exclude).keeps
        self._pacing = Pacing.of(sink.mode, sink.max_staleness)
        self._gathering = 0
        self._delivered = 0
        self._last: int | None = None
        self._said: dict[str, str] = {}

    @property
    def destination(self) -> str:
        """Project, dataset and mode, and for how long changes gather whatever the quotas."""
        gathering = f", merged every {self._pacing.gather // SECOND} s" if self._pacing.gather else ""
        return f"BigQuery, {self._target.project}.{self._sink.dataset}, mode {self._sink.mode}{gathering}"

    @property
    def checkpoint(self) -> str:
        """A folder of its own in the configured one: another sink's would say that epochs are done which are not."""
        return f"{absolute(self._config.spark.checkpoint)}/{self.consumer}"

    @property
    def source(self) -> type[DataSource]:
        """Writes rows."""
        return bigquery_source.BigQuerySinkSource

    @property
    def options(self) -> Mapping[str, str]:
        """As :class:`spark_sink.bigquery.source.BigQuerySinkSource` takes them."""
        return {
            "spool": absolute(self._config.spool.path),
            "pinned": self._pinned.to_text(),
            "dead_letters": absolute(self._sink.dead_letters),
            "endpoint": self._target.endpoint,
            "grpc_endpoint": self._target.grpc_endpoint,
            "location": self._sink.location or "",
            "max_staleness": str(self._sink.max_staleness),
            "max_bytes": str(self._config.spool.max_bytes),
        }

    def run(self, told: DataFrame) -> str:
        """Has the rows written, and makes those visible that are not."""
        rows = sorted(told.collect(), key=attrgetter("table", "part"))
        if not rows:
            return ""
        options = PinnedOptions.from_text(rows[0].options)
        tables = [list(of_table) for _, of_table in groupby(rows, attrgetter("table"))]
        if options.shape.mode == MERGE_LOAD:
            loaded(self._spool, rows[0].first, sum(len(from_text(row.wrote)) for row in rows))
        if options.shape.mode != MERGE:
            with ThreadPoolExecutor(_AT_A_TIME) as threads:
                show = self._merge if options.shape.mode == MERGE_LOAD else self._commit
                list(threads.map(lambda of_table: show(options, of_table), tables))
        self._forget()
        refused = sum(row.refused for row in rows)
        letters = f", {refused} to the dead letters at {self._sink.dead_letters}" if refused else ""
        said = f"{sum(row.rows for row in rows)} rows to {len(tables)} tables{letters}"
        return "; ".join(
            [
                said,
                *self._paced(len(tables)),
                *self._report(rows[0].first, refused, {row.table: row.stopped for row in rows}),
            ]
        )

    def drain(self) -> None:
        """Holds back nothing of what is sealed by now."""
        self._last = release(self._spool)

    def waiting(self) -> bool:
        """Whether there is an epoch, sealed before a drain, that the sink has not recorded as done."""
        consumer = find(self._spool, self.consumer)
        return (consumer.epoch if consumer else self._spool.floor() - 1) < last_of(self._spool, self._last)

    def _paced(self, tables: int) -> list[str]:
        """For how long the quotas make changes gather, where that is more than before by half, or less."""
        seconds = self._pacing.interval(tables) // SECOND
        is_told = self._gathering <= 1.5 * seconds <= 2.25 * self._gathering
        if seconds < _WORTH_TELLING or seconds <= self._pacing.gather // SECOND or is_told:
            return []
        self._gathering = seconds
        return [f"with {tables} tables changes gather for up to {seconds} s, for BigQuery's quotas (bigquery-costs.md)"]

    def _report(self, first: int, refused: int, tables: Mapping[str, str]) -> list[str]:
        """Notes what became of a micro-batch; returns why tables are stopped, each once."""
        before = report_of(self._spool, self.consumer)
        left_out = {table: "" for table in before.stopped if not self._keeps(table)}
        report = before.after(first, refused, {**left_out, **tables})
        if report != before:
            tell(self._spool, self.consumer, report)
        news = [why for table, why in tables.items() if why and why != self._said.get(table)]
        self._said |= tables
        return [f"{why}, and replay its dead letters" for why in news]

    def _forget(self) -> None:
        """Now and then, for it takes a list of all entries."""
        self._delivered += 1
        if self._delivered % _FORGETTING == 0:
            Ledger(self._spool).forget()

    def _commit(self, options: PinnedOptions, rows: Sequence[Row]) -> None:
        """Makes a table's rows of the micro-batch visible together."""
        first, table = rows[0].first, rows[0].table
        ledger = Ledger(self._spool)
        at = next(self._spool.manifests(first, first)).identity
        entry = ledger.find(first, table, at)
        streams = tuple(row.wrote for row in rows if row.wrote)
        if entry is None:
            batch = letters_of(self._spool.header().spool_id, first)
            place = DeadLetters(absolute(self._sink.dead_letters))
            place.discard(table, batch, but={row.letters for row in rows})  # those of attempts that do not count
        if entry is None and streams:
            entry = ledger.enter(first, table, streams, at)
        if entry is not None and not entry.committed:
            target = replace(self._target, project=options.project)
            BigQueryWriter(target, self._table(options, rows)).commit(entry.streams, entry=entry_path(first, table))
            ledger.committed(first, entry)

    def _merge(self, options: PinnedOptions, rows: Sequence[Row]) -> None:
        """Merges what was loaded of a table, load after load."""
        loads = [load for row in rows for load in from_text(row.wrote)]
        table = self._table(options, rows) if loads else None
        target = replace(self._target, project=options.project)
        for load in loads:
            assert table is not None
            merge_staging(target, table, load, prunes=self._sink.prune_by_keys)

    def _table(self, options: PinnedOptions, rows: Sequence[Row]) -> BigQueryTable:
        return bigquery_table(self._spool.schema(rows[0].schema_key), options.shape)


def merge_staging(target: BigQueryTarget, table: BigQueryTable, load: Load, *, prunes: bool) -> None:
    """Merges a table that rows were loaded into, once, and deletes it; the statement names keys if it ``prunes``."""
    client = BigQueryClient(target, failure=SinkError)
    path = f"{target.project}.{table.dataset}"
    sql = merge_statement(table, f"{path}.{table.name}", f"{path}.{load.staging}", load.bounds if prunes else "")
    client.merge(sql, table.dataset, table.name, job_id=f"{load.staging}_merge")
    client.delete(table.dataset, load.staging)


def options_of(config: Config, sink: BigQueryConfig) -> PinnedOptions:
    """The options that decide what is written."""
    part_bytes = _PART_BYTES_OF_A_LOAD if sink.mode == MERGE_LOAD else _PART_BYTES
    return PinnedOptions(sink.target(config.source).project, sink.shape(), part_bytes)
