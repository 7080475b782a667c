"""Reading one partition of a table: by the connector, and by google-cloud-spanner's own ``process_query_batch``."""

import time
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from functools import cache
from itertools import islice

import pyarrow as pa
from google.cloud.spanner_v1.database import BatchSnapshot, Database

from benchmarks.measure.envelope_dicts import envelope
from benchmarks.replay.messages import START, Span
from benchmarks.replay.rows import COLUMNS, TABLE, TableReplay
from connector.config.address import DatabaseAddress
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.core.timestamps import format_rfc3339
from connector.envelope.envelope import SCHEMA, Source
from connector.envelope.snapshot_events import SnapshotEnvelope
from connector.spanner.snapshot.partitions import SnapshotPartition
from connector.spanner.snapshot.reading import read_partition
from connector.spanner.snapshot.row_block import RowBlock
from emulator import connect


def address_at(host: str) -> DatabaseAddress:
    return DatabaseAddress("p", "instance", "d", emulator_host=host)


_KEY, *_VALUES = COLUMNS
TABLE_SCHEMA = TableSchema.of(
    TABLE,
    [ColumnType(name, f'{{"code":"{code}"}}', name == _KEY, at) for at, (name, code) in enumerate(COLUMNS.items(), 1)],
)
_ENVELOPE = SnapshotEnvelope(Source("p", "instance", "d", "Everything", "d"), stream_name=None, timestamp=START)
_AT_ONCE = 5_000
_RECORD: dict[str, object] = {
    "commit_timestamp": format_rfc3339(START),
    "record_sequence": "00000000",
    "server_transaction_id": None,
    "table_name": TABLE,
    "transaction_tag": None,
    "is_system_transaction": False,
    "number_of_records_in_transaction": None,
    "number_of_partitions_in_transaction": None,
    "is_last_record_in_transaction_in_partition": None,
    "value_capture_type": "NEW_ROW",
    "mod_type": "INSERT",
}


def to_arrow(host: str, replay: TableReplay, span: Span, _folder: str) -> int:
    """Reads rows into typed Arrow columns; returns how many."""
    return sum(block.typed().num_rows for block in _blocks(host, replay, span))


def to_events(host: str, replay: TableReplay, span: Span, _folder: str) -> int:
    """Reads rows into the envelope's columns; returns how many."""
    key = TABLE_SCHEMA.key
    return sum(
        _ENVELOPE.build(
            block.payloads([_KEY]), block.payloads(_VALUES), TABLE_SCHEMA, key, 1, read_timestamp=time.time_ns()
        ).num_rows
        for block in _blocks(host, replay, span)
    )


def library_rows(host: str, replay: TableReplay, span: Span, _folder: str) -> int:
    """Reads rows as google-cloud-spanner returns them, each a list of Python values; returns how many."""
    return sum(1 for _ in _library(host, replay, span))


def library_to_arrow(host: str, replay: TableReplay, span: Span, _folder: str) -> int:
    """Reads rows as google-cloud-spanner returns them, into Arrow columns; returns how many."""
    return sum(_arrow(rows).num_rows for rows in in_batches(_library(host, replay, span)))


def library_to_events(host: str, replay: TableReplay, span: Span, _folder: str) -> int:
    """Reads rows as google-cloud-spanner returns them, into the envelope's columns; returns how many."""
    return sum(
        pa.RecordBatch.from_pylist([_event(row) for row in rows], schema=SCHEMA).num_rows
        for rows in in_batches(_library(host, replay, span))
    )


def in_batches(rows: Iterator[list[object]], most: int = _AT_ONCE) -> Iterator[list[list[object]]]:
    """Yields rows in lists of some thousands."""
    while some := list(islice(rows, most)):
        yield some


def _event(row: list[object]) -> dict[str, object]:
    return envelope(_RECORD, 0, {_KEY: row[0]}, dict(zip(_VALUES, map(_plain, row[1:]), strict=True)))


def _plain(value: object) -> object:
    match value:
        case bytes():
            return value.decode()
        case Decimal() | date():
            return str(value)
    return value


def _arrow(rows: list[list[object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values) for values in zip(*rows, strict=True)], names=list(COLUMNS))


def _blocks(host: str, replay: TableReplay, span: Span) -> Iterator[RowBlock]:
    return read_partition(address_at(host), partition(replay.sql(span.mods)))


def partition(sql: str) -> SnapshotPartition:
    """The partition of a statement; its session and its transaction exist nowhere, and the replay needs none."""
    session = "projects/p/instances/instance/databases/d/sessions/replayed"
    return SnapshotPartition(session, b"transaction", sql, b"partition", ())


def _library(host: str, replay: TableReplay, span: Span) -> Iterator[list[object]]:
    return library_partition(host, replay.sql(span.mods))


def library_partition(host: str, sql: str) -> Iterator[list[object]]:
    """Returns the rows of a statement's partition as google-cloud-spanner returns them."""
    batch = BatchSnapshot.from_dict(_database(host), {"session_id": "replayed", "transaction_id": b"transaction"})
    rows: Iterator[list[object]] = iter(batch.process_query_batch({"partition": b"partition", "query": {"sql": sql}}))
    return rows


@cache
def _database(host: str) -> Database:
    database: Database = connect(host, "p").instance("instance").database("d")
    return database
