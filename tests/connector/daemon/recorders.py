"""The recorder of a change stream's backfills, without a server."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from connector.config import SourceConfig
from connector.core.dialects import GOOGLESQL
from connector.core.filters import RecordFilter
from connector.core.timestamps import MINUTE
from connector.daemon.backfill_recorder import BackfillRecorder
from connector.daemon.backfill_requests import Requests
from connector.envelope.envelope import Source
from connector.reader.change_stream import OpenStream
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import ChangeStream
from connector.spanner.relations import Relations
from connector.spanner.versions import RowVersions
from tests.connector.builders import address_of
from tests.connector.spool.backfill.builders import T, schema, spool_with_start


def stream(**source: object) -> OpenStream:
    config = SourceConfig(project="p", instance="in", database="d", change_stream="s")
    return OpenStream(
        SpannerClient(address_of("projects/p/instances/in/databases/d")),
        config.model_copy(update=source),
        GOOGLESQL,
        ChangeStream("s", "7d", "NEW_ROW", "MUTABLE_KEY_RANGE", (schema("A"), schema("B"))),
        Source("p", "in", "d", "s", "d"),
        RecordFilter((), (), ()),
        T,
    )


def recorder(folder: Path, opened: OpenStream) -> BackfillRecorder:
    spool, header = spool_with_start(folder)
    requests: Any = SimpleNamespace()  # none is sent
    return BackfillRecorder(spool, header, opened, RowVersions("1h", {}), requests)


def recorder_of_related(folder: Path, opened: OpenStream, *, reads_parents: bool) -> BackfillRecorder:
    """The recorder of a stream whose table B is interleaved in A; the rows are those of an hour after T."""
    spool, header = spool_with_start(folder)
    relations = Relations(("A", "B"), {"B": "A"}, frozenset(), {}, frozenset())
    requests = Requests(lambda: T + 60 * MINUTE, lambda _: opened.stream.tables, lambda: relations)
    return BackfillRecorder(spool, header, opened, RowVersions("1h", {}), requests, reads_parents=reads_parents)
