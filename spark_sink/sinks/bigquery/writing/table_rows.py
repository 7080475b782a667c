"""Writes the rows of one table of a part: buffers them, and hands them to the writer of the sink's mode.

What differs between the modes is the :class:`RowWriter`: the default stream, a pending stream, or a row merger whose
result a load job takes.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from connector.spool.reading import Spool
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.merging.loads import Loading
from spark_sink.sinks.bigquery.rows.builder import LARGEST, TOO_LARGE_PAIR, RowBuilder
from spark_sink.sinks.bigquery.rows.type_changes import FormerTypes
from spark_sink.sinks.bigquery.rows.update_pairs import paired
from spark_sink.sinks.bigquery.tables.table import (
    MERGE,
    MERGE_LOAD,
    BigQueryTable,
    BigQueryTableOptions,
    BigQueryTarget,
)
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.known_schemas import Rejections
from spark_sink.sinks.shared.row_slices import size_of, slices_of

SLICE = 4 * 1024 * 1024
"""Bytes of rows, as they are in the spool, that are written at a time."""

_REQUEST = 8 * 1024 * 1024
"""Bytes of rows in a request; one row may have more (:data:`spark_sink.sinks.bigquery.rows.builder.LARGEST`)."""


class RowWriter(Protocol):
    """Writes a table's rows; unless it says otherwise, it is never full and leaves nothing to the driver."""

    def write(self, rows: pa.RecordBatch) -> Rejections:
        """Writes rows of about :data:`SLICE` bytes; returns the index of each rejected one, and why."""

    @property
    def is_full(self) -> bool:
        """True if :meth:`end_epoch` has to be called at the end of the epoch."""
        return False

    def end_epoch(self) -> None:
        """An epoch is complete: the rows so far may be loaded by themselves."""
        return

    def finish(self) -> str:
        """Ends; returns the name of the stream or the staging tables that hold the rows, if the driver needs it."""
        return ""


class TableWriter:
    """Buffers a table's rows and writes them; keeps those that are rejected as dead letters.

    Args:
        table: its name in the source.
        dead_letters: the store for rejected rows.
        name: the prefix of the names of their files.
        rows: writes rows.
        rejected: rows of these that an earlier attempt has rejected.
    """

    def __init__(self, table: str, dead_letters: DeadLetters, name: str, rows: RowWriter, *, rejected: int = 0) -> None:
        self.waiting = 0
        self.dead_letters = name
        self._table = table
        self._store = dead_letters
        self._rows = rows
        self._batches: list[pa.RecordBatch] = []
        self._slices = 0
        self._written, self._rejected = -rejected, rejected

    def extend(self, rows: pa.RecordBatch) -> None:
        """Adds rows."""
        self._batches.append(rows)
        self.waiting += size_of(rows)
        if self.waiting >= SLICE:
            self.flush()

    def flush(self) -> None:
        """Writes the buffered rows."""
        if not self._batches:
            return
        waiting = pa.Table.from_batches(self._batches).combine_chunks()
        self._batches, self.waiting = [], 0
        for batch in waiting.to_batches():
            for one in slices_of(batch, SLICE):
                rejected = self._rows.write(one)
                self._keep(one, rejected)
                self._written += one.num_rows - len(rejected)
                self._slices += 1

    def end_epoch(self) -> None:
        """Ends an epoch, all of whose rows were added."""
        if self._rows.is_full:
            self.flush()
            self._rows.end_epoch()

    def finish(self) -> tuple[int, int, str]:
        """Ends; returns the numbers of written and of rejected rows, and what :meth:`RowWriter.finish` returns."""
        self.flush()
        return self._written, self._rejected, self._rows.finish()

    def _keep(self, rows: pa.RecordBatch, rejected: Rejections) -> None:
        if rejected:
            indexes, reasons = zip(*sorted(rejected), strict=True)
            self._store.put(self._table, f"{self.dead_letters}_{self._slices}", rows.take(pa.array(indexes)), reasons)
            self._rejected += len(rejected)


class StoppedRows(RowWriter):
    """Rejects every row, with the reason for which the table is stopped."""

    def __init__(self, why: str) -> None:
        self._why = why

    def write(self, rows: pa.RecordBatch) -> Rejections:
        """Rejects all."""
        return [(index, self._why) for index in range(rows.num_rows)]


class WrittenRows(RowWriter):
    """Accepts rows that an earlier attempt wrote, and does nothing."""

    def write(self, rows: pa.RecordBatch) -> Rejections:
        """Rejects none."""
        return []


class _StreamedRows(RowWriter):
    """Appends rows to a stream: the default stream, or its own ``pending`` one, whose rows are invisible yet.

    An event may be two rows (``pairs``), which are appended together or not at all.
    """

    def __init__(self, writer: BigQueryWriter, builder: RowBuilder, *, pending: bool, pairs: bool) -> None:
        self._writer = writer
        self._builder = builder
        self._pending = writer.create_pending() if pending else ""
        self._pairs = pairs
        self._offset = 0

    def write(self, rows: pa.RecordBatch) -> Rejections:
        rows, of_event = paired(rows) if self._pairs else (rows, np.arange(rows.num_rows))
        built = self._builder.build(rows, now=time.time_ns())
        rejected = {int(of_event[one.index]): one.reason for one in built.rejected}
        values: list[bytes] = built.rows.to_pylist()
        events: list[int] = of_event[built.indexes].tolist()
        if self._pairs:
            rejected |= _too_large_pairs(values, events)
            kept = [at for at, event in enumerate(events) if event not in rejected]
            values, events = [values[at] for at in kept], [events[at] for at in kept]
        for run in _requests(values, events):
            rejected |= self._append(values[run.start : run.stop], events[run.start : run.stop])
        return list(rejected.items())

    def _append(self, values: Sequence[bytes], events: Sequence[int]) -> dict[int, str]:
        """Appends the rows of the events that BigQuery accepts; returns the others, and why."""
        rejected: dict[int, str] = {}
        indexes = list(range(len(values)))
        while indexes:
            offset = self._offset if self._pending else None
            stream = self._pending or self._writer.default_stream
            rows = [values[index] for index in indexes]
            found = dict(self._writer.append(stream, self._builder.descriptor, rows, offset))
            if not found:
                self._offset += len(rows)
                break
            rejected |= {events[indexes[index]]: why for index, why in found.items()}
            indexes = [at for at in indexes if events[at] not in rejected]
        return rejected

    def finish(self) -> str:
        if not self._pending:
            return ""
        rows = self._writer.finalize(self._pending)
        if rows != self._offset:
            raise SinkError(
                f"BigQuery has {rows} rows of {self._offset} that were written",
                hint="None of them is visible. Run it again: nothing is lost.",
            )
        return self._pending if rows else ""


def _requests(rows: Sequence[bytes], events: Sequence[int]) -> Iterator[range]:
    """Runs of whole events that fit a request; numbers in arrays take up to five times as many bytes as their text.

    A run of more than :data:`_REQUEST` bytes has one event, so that BigQuery refuses only that one.
    """
    first = start = size = of_event = 0
    last = -1
    for number, (row, event) in enumerate(zip(rows, events, strict=True)):
        if event != last:
            start, size, of_event, last = number, size + of_event, 0, event
        of_event += len(row)
        if size and size + of_event > _REQUEST:
            yield range(first, start)
            first, size = start, 0
    if rows:
        yield range(first, len(rows))


def _too_large_pairs(rows: Sequence[bytes], events: Sequence[int]) -> dict[int, str]:
    """The events whose rows do not fit a request together, and why they are rejected."""
    sizes: dict[int, int] = {}
    for row, event in zip(rows, events, strict=True):
        sizes[event] = sizes.get(event, 0) + len(row)
    return {event: TOO_LARGE_PAIR for event, size in sizes.items() if size > LARGEST}


class _ReadableRows(RowWriter):
    """Passes on the rows whose values can be read by the table's types."""

    def __init__(self, rows: RowWriter, types: FormerTypes) -> None:
        self._rows = rows
        self._types = types

    def write(self, rows: pa.RecordBatch) -> Rejections:
        readable, indexes, rejected = self._types.sift(rows)
        found = self._rows.write(readable) if indexes else []
        return [*rejected, *((indexes[index], why) for index, why in found)]

    @property
    def is_full(self) -> bool:
        return self._rows.is_full

    def end_epoch(self) -> None:
        self._rows.end_epoch()

    def finish(self) -> str:
        return self._rows.finish()


def row_writer(
    target: BigQueryTarget,
    table: BigQueryTable,
    table_options: BigQueryTableOptions,
    name: str,
    spool: Spool,
) -> RowWriter:
    """The writer of a table's rows, by mode.

    Args:
        target: the project and its endpoints.
        table: the table.
        table_options: the options that decide its columns.
        name: names these rows and these options, and no others.
        spool: has the schemas that the rows were written with.
    """
    rows: RowWriter
    if table_options.mode == MERGE_LOAD:
        rows = Loading(BigQueryClient(target), table, name)
    else:
        writer, builder = BigQueryWriter(target, table), RowBuilder(table, table_options.mode)
        pending, pairs = table_options.mode != MERGE, table_options.update_pairs
        rows = _StreamedRows(writer, builder, pending=pending, pairs=pairs)
    return _ReadableRows(rows, FormerTypes(table, table_options, spool))
