"""The events of a spool as changes, from a position on."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from connector.envelope.envelope import WHOLE_ROWS
from connector.spool.manifest import Manifest, SegmentFile
from connector.spool.reading import Spool
from spark_sink.sinks.spanner.writing.row_merger import KeyedChange
from spark_sink.sinks.spanner.writing.units import UnitPosition


def changes_of(spool: Spool, epochs: Iterable[Manifest], start: UnitPosition) -> Iterator[KeyedChange]:
    """The changes of epochs, in commit order, without those before a position.

    Raises:
        SpoolError: a segment cannot be read.
    """
    for epoch in epochs:
        if epoch.epoch < start.epoch:
            continue
        skipped = start.events if epoch.epoch == start.epoch else 0
        first = 0
        for rows in (batch for file in epoch.files for batch in spool.batches(file)):
            left = rows.slice(max(0, skipped - first))
            yield from _changes(left, epoch.epoch, first + rows.num_rows - left.num_rows)
            first += rows.num_rows


class EventsByPlace:
    """The events of epochs by their places. Those of one file are kept, because many of them may be needed one by one.

    Args:
        spool: the spool.
        epochs: the epochs, of any size: a partition of a backfill is one.
    """

    def __init__(self, spool: Spool, epochs: Iterable[Manifest]) -> None:
        self._spool = spool
        self._epochs = {epoch.epoch: epoch for epoch in epochs}
        self._kept = ""
        self._table: pa.Table | None = None

    def at(self, epoch: int, places: Sequence[int]) -> pa.RecordBatch:
        """The events of an epoch at places within it, in ascending order, of which there is at least one.

        Raises:
            SpoolError: a segment cannot be read.
        """
        found, first = [], 0
        for file in self._epochs[epoch].files:
            inside = [place - first for place in places if first <= place < first + file.rows]
            if inside:
                found.append(self._events(file).take(pa.array(inside)))
            first += file.rows
        (rows,) = pa.concat_tables(found).combine_chunks().to_batches()
        return rows

    def _events(self, file: SegmentFile) -> pa.Table:
        if self._table is None or self._kept != file.path:
            self._table = None  # two files are not in memory at once
            self._table, self._kept = pa.Table.from_batches(list(self._spool.batches(file))), file.path
        return self._table


def _changes(rows: pa.RecordBatch, epoch: int, first: int) -> Iterator[KeyedChange]:
    metadata = rows.column("source_metadata")
    for place, (table, mod_type, capture, payload, timestamp, sequence, transaction, schema_key) in enumerate(
        zip(
            rows.column("object").to_pylist(),
            metadata.field("mod_type").to_pylist(),
            metadata.field("value_capture_type").to_pylist(),
            rows.column("payload").to_pylist(),
            metadata.field("commit_timestamp").to_pylist(),
            rows.column("change_sequence_number").to_pylist(),
            metadata.field("server_transaction_id").to_pylist(),
            rows.column("schema_key").to_pylist(),
            strict=True,
        ),
        first,
    ):
        yield KeyedChange(
            table,
            mod_type,
            capture in WHOLE_ROWS,
            payload,
            timestamp,
            sequence,
            f"{timestamp} {place if transaction is None else transaction}",  # a row of a backfill is one of its own
            (epoch, place),
            schema_key,
        )
