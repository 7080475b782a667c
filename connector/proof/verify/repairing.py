"""Fills the spool of a repair: the rows with some keys as they are in Spanner at its timestamp.

A row that Spanner has is sent as it is then. One that Spanner did not have when it was compared, and does not have now,
is sent as a delete. A row that was missing or different, and is gone now, is not sent: its delete is a change.

The repair is a backfill whose tables have a partition of deletes and one of rows. Deletes come first, those of children
before those of their parents, so that what they free is free. Rows follow, those of parents first.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from connector.config import SourceConfig
from connector.config.replicas import ValuePrecision
from connector.core.schemas import TableSchema
from connector.envelope.envelope import Source
from connector.envelope.snapshot_events import REPAIR, SnapshotEnvelope
from connector.errors import SpoolError
from connector.log import Log, terminal
from connector.progress import Progress
from connector.proof.verify.differing_keys import DifferingKeys
from connector.proof.verify.rows import parsed
from connector.proof.verify.values import TableValues
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_keys
from connector.spanner.snapshot.segments import SnapshotSegments
from connector.spool.backfill.documents import Backfill, PartitionPlan
from connector.spool.backfill.records import write_plan, write_progress
from connector.spool.backfill.sealing import BackfillWriter
from connector.spool.backfill.sealing import progress as progress_of
from connector.spool.manifest import BackfillPart
from connector.spool.reading import Spool

_KEYS_AT_ONCE = 2000
_DELETES, _ROWS = 0, 1
"""The partitions of a table."""

_log = Log(__name__)


class StoppedError(Exception):
    """A stop is requested before a repair is recorded."""


@dataclass(frozen=True, slots=True)
class RepairFiller:
    """Reads the rows of a repair into its spool; memory holds some thousand of them.

    Attributes:
        source: the database.
        stream_name: the configured stream name, or None.
        keys: of the rows.
        max_bytes: from which on it is refused; None if nothing bounds it.
        is_stopped: whether a stop is requested; it is asked between reads.
    """

    source: SourceConfig
    stream_name: str | None
    keys: DifferingKeys
    max_bytes: int | None = None
    is_stopped: Callable[[], bool] = bool

    def fill(self, own: Spool, document: Backfill) -> None:
        """Writes all epochs of a repair.

        Args:
            own: the spool of the repair, without epochs.
            document: the repair, whose tables are in the order in which their rows can be written.

        Raises:
            StoppedError: a stop is requested.
            VersionRetentionError: the database no longer keeps the versions of its timestamp.
            SpannerCdcError: Spanner cannot be read, the disk refuses, or the rows are larger than the spool may be.
        """
        writer = BackfillWriter(own, own.header(), document)
        count = len(document.tables)
        with Progress(_log, "reading the rows to repair", terminal()) as progress:
            files, plans, held = [], {}, 0
            for index, table in enumerate(document.tables):
                schema = own.schema(table.schema_key)
                deletes, rows = (
                    self._segments(own, document, schema, epoch) for epoch in (count - index, count + 1 + index)
                )
                self._read(schema, document.timestamp, deletes, rows, progress, held)
                files.append((deletes.finished(), rows.finished()))
                held += deletes.bytes + rows.bytes
                self._check_size(held)
                plans[table.table] = PartitionPlan(table=table.table, plan=1, partitions=("deletes", "rows"))
                write_plan(own, index, plans[table.table])
        order = [(_DELETES, index) for index in reversed(range(count))] + [(_ROWS, index) for index in range(count)]
        for partition, index in order:
            part = BackfillPart(table=document.tables[index].table, plan=1, partition=partition)
            writer.seal(part, files[index][partition], now=time.time_ns())
        write_progress(own, progress_of(document, plans, writer.sealed, delivered=0, now=time.time_ns()))

    def _segments(self, own: Spool, document: Backfill, schema: TableSchema, epoch: int) -> SnapshotSegments:
        name = self.source.name
        source = Source(**name.model_dump(), default_schema=own.header().default_schema or name.database)
        at = document.timestamp
        envelope = SnapshotEnvelope(source, stream_name=self.stream_name, read_method=REPAIR, timestamp=at)
        return SnapshotSegments(own, envelope, schema, epoch, at)

    def _read(
        self,
        schema: TableSchema,
        timestamp: int,
        deletes: SnapshotSegments,
        rows: SnapshotSegments,
        progress: Progress,
        held: int,
    ) -> None:
        names, values = schema.primary_keys, TableValues(schema, ValuePrecision())
        query = TableQuery(schema.table, tuple(column.name for column in schema.columns))
        read = 0
        for keys in self.keys.of(schema.table, _KEYS_AT_ONCE):
            if self.is_stopped():
                raise StoppedError
            found = set[str]()
            blocks = read_keys(
                self.source.address,
                query,
                pa.array([key.text for key in keys], pa.string()),
                names,
                timestamp,
                rpc_priority=self.source.rpc_priority,
            )
            for block in blocks:
                rows.add(block)
                self._check_size(held + deletes.bytes + rows.bytes)
                found.update(values.key(parsed(text)) for text in block.payloads(names).to_pylist())
            gone = [key.text for key in keys if key.is_extra and values.key(parsed(key.text)) not in found]
            deletes.delete(pa.array(gone, pa.string()))
            read += len(keys)
            progress.show(read, table=schema.table, rows=read)

    def _check_size(self, count: int) -> None:
        """Checks the bytes of the rows that are read: all of them are kept until the repair is delivered."""
        if self.max_bytes is not None and count > self.max_bytes:
            raise SpoolError(
                "the rows to repair are larger than spool.max_bytes",
                hint="Run a backfill, repair some tables at a time with --tables, or raise spool.max_bytes.",
            )
