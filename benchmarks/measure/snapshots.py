"""Reading one partition of a table: by the connector, and by google-cloud-spanner's own ``process_query_batch``."""

import time
from collections.abc import Iterator
from functools import cache

import pyarrow as pa
from google.cloud.spanner_v1.database import BatchSnapshot, Database

from benchmarks.replay.messages import START, Span
from benchmarks.replay.rows import COLUMNS, TableReplay
from connector.config import SourceConfig
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.envelope.envelope import Source
from connector.envelope.snapshot_events import SnapshotEnvelope
from connector.snapshot.partitions import SnapshotPartition
from connector.snapshot.reading import read_partition
from connector.snapshot.row_block import RowBlock
from emulator import connect

SOURCE = SourceConfig(project="p", instance="instance", database="d", change_stream="Everything")
_KEY, *_VALUES = COLUMNS
_TABLE = TableSchema.of(
    "Accounts",
    [ColumnType(name, f'{{"code":"{code}"}}', name == _KEY, at) for at, (name, code) in enumerate(COLUMNS.items(), 1)],
)
_ENVELOPE = SnapshotEnvelope(Source("p", "instance", "d", "Everything", "d"), stream_name=None, timestamp=START)
_AT_ONCE = 5_000


def to_arrow(host: str, replay: TableReplay, span: Span, _folder: str) -> int:
    """Reads rows into typed Arrow columns; returns how many."""
    return sum(block.typed().num_rows for block in _blocks(host, replay, span))


def to_events(host: str, replay: TableReplay, span: Span, _folder: str) -> int:
    """Reads rows into the envelope's columns; returns how many."""
    key = _TABLE.key
    return sum(
        _ENVELOPE.build(
            block.payloads([_KEY]), block.payloads(_VALUES), _TABLE, key, 1, read_timestamp=time.time_ns()
        ).num_rows
        for block in _blocks(host, replay, span)
    )


def library_rows(host: str, replay: TableReplay, span: Span, _folder: str) -> int:
    """Reads rows as google-cloud-spanner returns them, each a list of Python values; returns how many."""
    return sum(1 for _ in _library(host, replay, span))


def library_to_arrow(host: str, replay: TableReplay, span: Span, _folder: str) -> int:
    """Reads rows as google-cloud-spanner returns them, into Arrow columns; returns how many."""
    rows: list[list[object]] = []
    found = 0
    for row in _library(host, replay, span):
        rows.append(row)
        if len(rows) == _AT_ONCE:
            found += _arrow(rows).num_rows
            rows = []
    return found + (_arrow(rows).num_rows if rows else 0)


def _arrow(rows: list[list[object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values) for values in zip(*rows, strict=True)], names=list(COLUMNS))


def _blocks(host: str, replay: TableReplay, span: Span) -> Iterator[RowBlock]:
    session = "projects/p/instances/instance/databases/d/sessions/replayed"
    partition = SnapshotPartition(session, b"transaction", replay.sql(span.mods), b"partition", ())
    return read_partition(SOURCE, host, partition)


def _library(host: str, replay: TableReplay, span: Span) -> Iterator[list[object]]:
    batch = BatchSnapshot.from_dict(_database(host), {"session_id": "replayed", "transaction_id": b"transaction"})
    query = {"sql": replay.sql(span.mods)}
    rows: Iterator[list[object]] = iter(batch.process_query_batch({"partition": b"partition", "query": query}))
    return rows


@cache
def _database(host: str) -> Database:
    database: Database = connect(host, "p").instance("instance").database("d")
    return database
