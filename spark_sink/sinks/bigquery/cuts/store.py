"""The published cuts of a sink in BigQuery.

Where rows are appended, and in ``merge``, a cut is a row in the default stream of ``_cuts``: no quota counts it. A row
that is sent again after an error may be there twice, with the same content. In ``merge-load`` it is inserted by a job
with a fixed id, which notes the time of BigQuery's clock: once, whoever starts it again. After all MERGE statements of
the micro-batch have ended, and before the next ones, that time is one at which every table is as of the cut.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from connector.spool.reading import Spool
from connector.spool.sink_report import report_of
from connector.spool.sink_start import start_of_sink
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.cuts.table import CutRow, SinkCuts, cut_of, cuts_table
from spark_sink.sinks.bigquery.cuts.views import view_statement
from spark_sink.sinks.bigquery.tables.preparing import create_table
from spark_sink.sinks.bigquery.tables.records import TableRecord, TableRecords
from spark_sink.sinks.bigquery.tables.table import (
    MERGE_LOAD,
    BigQueryTableOptions,
    BigQueryTarget,
    bigquery_table,
    view_name,
)
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.published_cut import CutStore, PublishedCut, TableAtCut

_AT_A_TIME = 8
"""Views that are created at the same time."""


class BigQueryCuts(CutStore):
    """The cuts of a sink.

    Args:
        spool: the change stream's.
        target: the project and its endpoints.
        table_options: of the sink's tables.
        sink: the sink's name.
        location: the region in which a missing dataset is created; empty where it is not.
        has_views: whether tables have views as of the newest cut.
    """

    def __init__(
        self,
        spool: Spool,
        target: BigQueryTarget,
        table_options: BigQueryTableOptions,
        *,
        sink: str,
        location: str = "",
        has_views: bool = False,
    ) -> None:
        self._spool = spool
        self._target = target
        default_schema = spool.header().default_schema or ""
        self._options = replace(table_options, default_schema=default_schema)
        self._sink = sink
        self._location = location
        self._has_views = has_views
        self.notes_versions_last = table_options.mode == MERGE_LOAD
        self._client = BigQueryClient(target)
        self._spool_id = spool.header().spool_id
        self._table = cuts_table(self._options)
        self._path = f"{target.project}.{self._table.dataset}.{self._table.name}"
        self._own = SinkCuts(self._path, sink, self._spool_id)
        self._is_created = False
        self._views: dict[str, str] = {}

    def newest(self) -> PublishedCut | None:
        """The newest cut by the sink's report, which needs no query; versions are not known there."""
        known = report_of(self._spool, self._sink).cut
        if known is None:
            return None
        tables = {name: TableAtCut(incomplete=why) for name, why in known.incomplete.items()}
        return PublishedCut(
            timestamp=known.timestamp,
            epoch=known.epoch,
            spool_id=self._spool_id,
            published_at=known.published_at,
            tables=tables,
        )

    def cuts(self) -> Sequence[PublishedCut]:
        """The newest published cuts, at most 10,000."""
        if self._client.find(self._table.dataset, self._table.name) is None:
            return []
        sql = self._own.select_statement()
        return [cut_of(self._spool_id, *row) for row in self._client.rows(sql, self._table.dataset, self._table.name)]

    def publish(self, cut: PublishedCut) -> None:
        """Adds a row, after the views of all tables are there."""
        if not self._is_created:
            create_table(self._client, self._target, self._table, self._location)
            self._is_created = True
        made = {name: record for name, record in self._made() if record.source in cut.tables}
        if self._has_views:
            # Older programs recorded no schema of a table. It gets its view once it has another change.
            known = [record for record in made.values() if record.schema_key]
            with ThreadPoolExecutor(_AT_A_TIME) as threads:
                list(threads.map(self._create_view, known))
        names = {record.source: name.partition(".")[2] for name, record in made.items()}
        row = CutRow(cut, self._sink, self._options.mode, names)
        if self._options.mode == MERGE_LOAD:
            start = start_of_sink(self._spool, self._sink)
            job_id = row.job_id(self._path, start.id if start else "")
            self._client.query(row.insert_statement(self._path), self._table.dataset, self._table.name, job_id=job_id)
            return
        writer = BigQueryWriter(self._target, self._table)
        for _, why in writer.append(writer.default_stream, row.descriptor, [row.message()]):
            raise SinkError(
                f"BigQuery's {self._path} does not take the cut of epoch {cut.epoch}: {why}",
                hint="Rename that table, and the sink creates it with the columns that it needs.",
            )

    def _made(self) -> Iterable[tuple[str, TableRecord]]:
        """The sink's tables that were created in this mode: ``project.dataset.table``, and the record."""
        records = TableRecords(self._spool, self._sink).all()
        mode = self._options.mode
        return ((name, record) for name, record in records.items() if record.columns and record.mode in ("", mode))

    def _create_view(self, record: TableRecord) -> None:
        """Creates a view, unless this process has created it with the columns that its table has now."""
        schema = self._spool.schema(record.schema_key)
        table = bigquery_table(schema, self._options)
        sql = view_statement(
            table,
            record.columns,
            schema.primary_keys,
            project=self._target.project,
            cuts=self._own,
            mode=self._options.mode,
        )
        if self._views.get(record.source) != sql:
            self._client.query(sql, table.dataset, view_name(table.name))
            self._views[record.source] = sql
