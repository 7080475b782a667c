"""Backfills of tables without Spanner: documents, plans, and segments with a few rows."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from connector.core.schemas import TableSchema
from connector.core.timestamps import parse
from connector.envelope.envelope import Source
from connector.envelope.snapshot_events import SnapshotEnvelope
from connector.spool.backfill.documents import Backfill, PartitionPlan
from connector.spool.backfill.records import backfills, record, spool_of, write_plan
from connector.spool.manifest import SegmentFile, SourceName
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.segments import SegmentBuffer
from connector.spool.writing import initialize
from tests.connector.builders import column

SOURCE = SourceName(project="p", instance="in", database="d", change_stream="Everything")
T = parse("2026-03-01T10:00:30.000001Z")


def schema(table: str) -> TableSchema:
    return TableSchema.of(table, [column("Id", "INT64", 1, key=True), column("Name", ordinal=2)], ["Id"])


def spool_with_start(folder: Path | str, *, placements: Sequence[str] | None = None) -> tuple[Spool, SpoolHeader]:
    """A change stream's spool whose start is right after T."""
    spool = Spool.at(folder)
    tables = [schema("A"), schema("B")]
    return spool, initialize(spool, SOURCE, T + 1, "now", tables, default_schema="d", placements=placements)


def recorded(
    spool: Spool,
    header: SpoolHeader,
    *tables: str,
    at: int = T,
    continues: int = 0,
    where: dict[str, str] | None = None,
) -> Backfill:
    return record(
        spool,
        header,
        [schema(table) for table in tables],
        after=len(backfills(spool)),
        timestamp=lambda: at,
        why="start",
        dialect="googlesql",
        now=at,
        continues=continues,
        conditions=where,
    )


def planned(spool: Spool, document: Backfill, partitions: dict[str, int], *, plan: int = 1) -> dict[str, PartitionPlan]:
    """Writes plans with so many partitions."""
    found = {}
    own = spool_of(spool, document.number)
    for index, table in enumerate(document.tables):
        count = partitions.get(table.table)
        if count is not None:
            found[table.table] = PartitionPlan(table=table.table, plan=plan, partitions=("{}",) * count)
            write_plan(own, index, found[table.table])
    return found


def rows(table: str, ids: list[int], *, epoch: int, at: int = T) -> pa.RecordBatch:
    envelope = SnapshotEnvelope(Source("p", "in", "d", "Everything", "d"), stream_name=None, timestamp=at)
    keys = pa.array([f'{{"Id":"{each}"}}' for each in ids])
    values = pa.array([f'{{"Name":"{table}{each}"}}' for each in ids])
    of_table = schema(table)
    return envelope.build(keys, values, of_table, of_table.key, epoch, at)


def segment(own: Spool, table: str, ids: list[int], *, epoch: int, name: str = "0") -> SegmentFile:
    buffer = SegmentBuffer()
    buffer.append(rows(table, ids, epoch=epoch))
    return buffer.store(own.storage, f"segments/{epoch:020d}-test-{name}.arrow", first=T, last=T)
