"""Writes a snapshot's rows as segments of an epoch, in a backfill's spool.

Memory does not depend on how many rows there are: a segment is written whenever it has enough. Nothing of it is in an
epoch before a manifest lists it.
"""

import secrets
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from connector.core.schemas import TableSchema
from connector.envelope.snapshot_events import DELETE, INSERT, SnapshotEnvelope
from connector.spanner.snapshot.row_block import RowBlock
from connector.spool.manifest import SegmentFile
from connector.spool.reading import Spool
from connector.spool.segments import SegmentBuffer

SEGMENT_BYTES = 48 * 1024 * 1024
"""Bytes from which on a segment ends; with the last batch it stays below 64 MiB."""

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of values from which on a record batch of a segment ends."""


class SnapshotSegments:
    """Some rows of a table, written as the segments of an epoch; their names are of this attempt alone.

    Args:
        spool: the backfill's spool.
        envelope: makes events of rows.
        schema: the table's.
        epoch: the epoch that the rows will be in.
        timestamp: of the rows, Unix nanoseconds.

    Raises:
        SpoolError: from every method, if the disk refuses.
    """

    def __init__(
        self, spool: Spool, envelope: SnapshotEnvelope, schema: TableSchema, epoch: int, timestamp: int
    ) -> None:
        self._spool = spool
        self._envelope = envelope
        self._schema = schema
        self._schema_key = schema.key
        self._epoch = epoch
        self._timestamp = timestamp
        self._keys = schema.primary_keys
        self._others = [column.name for column in schema.columns if column.name not in schema.primary_keys]
        self._name = f"segments/{epoch:020d}-{secrets.token_hex(8)}"
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._segment: SegmentBuffer | None = None
        self._files: list[SegmentFile] = []

    def add(self, block: RowBlock) -> None:
        """Adds rows."""
        if block.rows:
            existing = {column.name for column in block.columns}  # at the timestamp
            keys = _objects(block, self._keys)
            self._hold(keys, _objects(block, [name for name in self._others if name in existing]), INSERT)
            self._bytes += block.bytes
        self._append(BATCH_BYTES)

    def delete(self, keys: pa.StringArray) -> None:
        """Adds deletes of rows.

        Args:
            keys: the JSON objects of the columns of the key, in the order of the key.
        """
        if len(keys):
            self._hold(keys, pa.repeat(pa.scalar("{}", pa.string()), len(keys)), DELETE)
            self._bytes += keys.nbytes
        self._append(BATCH_BYTES)

    @property
    def bytes(self) -> int:
        """The bytes of all segments that are written."""
        return sum(file.bytes for file in self._files)

    def finished(self) -> list[SegmentFile]:
        """Writes what is held; returns all segments, in order."""
        self._append(0)
        if self._segment is not None:
            self._store()
        return self._files

    def _hold(self, keys: pa.StringArray, values: pa.StringArray, mod_type: str) -> None:
        self._held.append(
            self._envelope.build(
                keys, values, self._schema, self._schema_key, self._epoch, time.time_ns(), mod_type=mod_type
            )
        )

    def _append(self, least: int) -> None:
        """Appends what is held to the segment, in batches of a few megabytes, if it is so many bytes."""
        if self._bytes < least:
            return
        for batch in self._batches():
            self._segment = self._segment or SegmentBuffer()
            self._segment.append(batch)
            if self._segment.bytes >= SEGMENT_BYTES:
                self._store()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        held, self._held, self._bytes = self._held, [], 0
        if held:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()

    def _store(self) -> None:
        assert self._segment is not None
        path = f"{self._name}-{len(self._files)}.arrow"
        at = self._timestamp
        self._files.append(self._segment.store(self._spool.storage, path, first=at, last=at))
        self._segment = None


def _objects(block: RowBlock, names: Sequence[str]) -> pa.StringArray:
    return block.payloads(names) if names else pa.repeat(pa.scalar("{}", pa.string()), block.rows)
