"""The backfills of ``spanner-cdc run``: that of the start, and with ``new_tables`` those of tables that come later."""

import asyncio
import functools
from collections.abc import Iterable
from pathlib import Path

from connector.check.backfilled_tables import tables_of
from connector.config.loading import Config
from connector.core.schemas import TableSchema
from connector.daemon.backfill import BackfillOptions, delivered, first_recorded, unfinished_of
from connector.daemon.backfill_requests import Requests
from connector.daemon.sink_process import Patience
from connector.errors import SpannerCdcError
from connector.log import Log
from connector.reader.change_stream import opened
from connector.reader.stopping import StopRequest
from connector.spanner.versions import row_versions
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.records import RecordedBackfill, backfills
from connector.spool.reading import Spool, SpoolHeader
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_thread

INTERVAL = 30.0
"""Seconds between two looks at the tables that the change stream watches."""

_log = Log(__name__)


class BackfillsOfRun:
    """Delivers the backfills that are due beside the stream: that of the start, and those of new tables.

    Args:
        config: the configuration.
        path: its file, for the process of Spark.
        stop: lets what is read be delivered, and ends.
        metrics: of the service.
        patience: with a process that makes no progress.
    """

    def __init__(
        self, config: Config, path: Path, stop: StopRequest, *, metrics: ReaderMetrics, patience: Patience
    ) -> None:
        rules = config.source.backfill
        self._config = config
        self._interval = INTERVAL if rules is not None and rules.new_tables else None
        self._stop = stop
        self._deliver = functools.partial(
            delivered, config, path, stop, options=BackfillOptions(), metrics=metrics, patience=patience
        )
        self._due: list[Backfill] = []
        self._is_finished = False
        self._news = asyncio.Event()

    def add(self, document: Backfill) -> None:
        """Lets a backfill that is recorded and not done be delivered."""
        self._due.append(document)
        self._news.set()

    def finish(self) -> None:
        """Lets what is due be delivered, and looks for no further table."""
        self._is_finished = True
        self._news.set()

    async def run(self) -> None:
        """Delivers until it is finished, or until a backfill fails.

        Raises:
            SpannerCdcError: that of a backfill.
        """
        while self._due or not self._is_finished:
            if self._due:
                await self._deliver(self._due.pop())
                continue
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), self._interval)
            except TimeoutError:
                await self._fill_new_tables()

    async def _fill_new_tables(self) -> None:
        if self._stop.requested:
            return
        try:
            document = await backfill_of_new_tables(self._config)
        except SpannerCdcError as error:  # the next look may meet no error
            _log.warning("whether the change stream watches new tables is not known", reason=error)
            return
        if document is not None:
            self.add(document)


async def backfill_of_new_tables(config: Config) -> Backfill | None:
    """Records a backfill of the tables that are new; None if there are none, or while another is not finished.

    Raises:
        SpannerCdcError: Spanner or the spool cannot be read, or the disk refuses.
    """
    spool = Spool.at(config.spool.path)
    known = await in_thread(functools.partial(backfills, spool))
    if not known or unfinished_of(known) is not None:  # that of the start comes first
        return None
    async with opened(config.source, started=True) as stream:
        header = await in_thread(spool.header)
        tables = new_tables(tables_of(stream), header, known)
        if not tables:
            return None
        versions = await row_versions(stream.client, stream.dialect)
        requests, after = Requests.of(stream), len(known)
        record = functools.partial(
            first_recorded, spool, header, stream, versions, requests, tables, after=after, why="command"
        )
        return await in_thread(record)


def new_tables(
    tables: Iterable[TableSchema], header: SpoolHeader, known: Iterable[RecordedBackfill]
) -> list[TableSchema]:
    """Those of some tables that the stream did not watch at the spool's start, and that no backfill has. Pure."""
    had = {table.table for one in known if not one.document.is_repair for table in one.document.tables}
    return [table for table in tables if table.table not in header.schema_keys and table.table not in had]
