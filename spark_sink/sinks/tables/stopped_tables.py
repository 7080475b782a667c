"""Tables that are stopped: their changes become dead letters, in order, until these are replayed or removed.

A table that cannot be written is stopped from that micro-batch on, even once its cause is gone. A later change must not
overtake its dead letters, because a table skips the epochs up to its last one. So a table is stopped as long as it has
dead letters of the spool, whatever process comes next.

The dead letters are read from the spool. A file of them has whole epochs, because a commit to a table has whole epochs.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connector import log
from connector.errors import SpannerCdcError
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, write_report
from spark_sink.sinks.shared.dead_letters import DeadLetters, folder_of

_FILE_BYTES = 8 * 1024 * 1024
"""Bytes of events in a file of dead letters, unless one epoch has more: a replay has one commit for each."""

STOPPED = "_tables_"
"""In the names of files with dead letters of stopped tables, after the spool's id."""

ROWS_KEPT = "its deleted rows are kept with _is_deleted"
"""The start of the reason of a table that is reported without dead letters: see the sink's delivery."""


class StoppedTables:
    """The stopped tables of a spool; the process that delivers from it writes their dead letters.

    Args:
        spool: the spool.
        consumer: the sink's name.
        dead_letters: the sink's dead-letter store.

    Raises:
        SinkError: from every method, if the store cannot be read or written.
        SpoolError: from every method, if the spool cannot be read.
    """

    def __init__(self, spool: Spool, consumer: str, dead_letters: DeadLetters) -> None:
        self._spool = spool
        self._consumer = consumer
        self._is_recorded = False
        self._dead_letters = dead_letters
        self._prefix = f"{spool.header().spool_id}{STOPPED}"
        self._folders = set(dead_letters.folders(self._prefix))
        found = report_of(spool, consumer).stopped
        reported = {table: why for table, why in found.items() if not why.startswith(ROWS_KEPT)}
        self._reasons = {table: why for table, why in reported.items() if folder_of(table) in self._folders}
        self.resumed = frozenset(reported) - self._reasons.keys()
        """Tables that were stopped, and whose dead letters were removed or are not found: see :meth:`record`."""
        for table in sorted(self.resumed):
            self._say(
                f"table {table} continues: there are no dead letters of it at {dead_letters.root} any more. It lacks"
                f" their changes until `spanner-cdc backfill --table {table}` brings its rows",
                table,
                "table_resumed",
                logging.WARNING,
            )

    @property
    def reasons(self) -> Mapping[str, str]:
        """The reason why each table is stopped, as far as it was asked for."""
        return self._reasons

    def has(self, table: str) -> bool:
        """True if a table is stopped. The store is searched once, because only this process adds to it."""
        if folder_of(table) in self._folders:
            self._reasons.setdefault(table, "its earlier changes are dead letters")
        return table in self._reasons

    def stop(self, errors: Mapping[str, SpannerCdcError]) -> None:
        """Stops tables, with a line for each."""
        for table, error in errors.items():
            self._reasons[table] = str(error)
            self._say(
                f"table {table} is stopped, and the others continue: {error}. Its changes become dead letters at"
                f" {self._dead_letters.root}: once it is mended, stop the sink, and run"
                " `spanner-cdc dead-letters replay`",
                table,
                "table_stopped",
                logging.ERROR,
            )

    def record(self, stream: Spool, first: int) -> None:
        """Records that tables which continue without their dead letters are incomplete, before they are called resumed.

        Args:
            stream: the change stream's spool.
            first: the first epoch of this spool that they have, or some other table has, without these.
        """
        if self._is_recorded or not self.resumed:
            return
        report = report_of(stream, self._consumer)
        up_to = self._spool.manifest(first).watermark_high
        write_report(stream, self._consumer, report.lacks(self.resumed, up_to))
        self._is_recorded = True

    def put(self, tables: Iterable[str], first: int, last: int) -> Mapping[str, int]:
        """Writes the events of tables that are stopped as dead letters, durably; returns how many each table has.

        Args:
            tables: tables of which some epochs have events.
            first: the first of these epochs.
            last: the last of them.
        """
        return {table: self._put(table, first, last) if self.has(table) else 0 for table in tables}

    def _put(self, table: str, first: int, last: int) -> int:
        waiting: list[pa.RecordBatch] = []
        count = 0
        for manifest in self._spool.manifests(first, last):
            if table in manifest.tables:
                waiting += self._rows(table, manifest)
            if sum(rows.nbytes for rows in waiting) >= _FILE_BYTES:
                count += self._write(table, waiting, last)
                waiting = []
        return count + self._write(table, waiting, last)

    def _rows(self, table: str, manifest: Manifest) -> Iterator[pa.RecordBatch]:
        """A table's events of an epoch."""
        for file in manifest.files:
            for batch in self._spool.batches(file):
                rows = batch.filter(pc.equal(batch.column("object"), table))
                if rows.num_rows:
                    yield rows

    def _write(self, table: str, found: Sequence[pa.RecordBatch], last: int) -> int:
        """Writes a file; its first epoch and the micro-batch's last are in its name (:func:`last_epoch`)."""
        if not found:
            return 0
        (rows,) = pa.Table.from_batches(found).combine_chunks().to_batches()
        name = f"{self._prefix}{pc.min(rows.column('epoch')).as_py():016d}_{last:016d}"
        self._dead_letters.put(table, name, rows, [self._reasons[table]] * rows.num_rows)
        self._folders.add(folder_of(table))
        return int(rows.num_rows)

    def _say(self, line: str, table: str, action: str, level: int) -> None:
        log.say("spark_sink", line, action=action, level=level, table=table)


def last_epoch(name: str, rows: pa.RecordBatch) -> int:
    """The last epoch of the micro-batch of a file with dead letters of a stopped table.

    A table that has later ones has overtaken the file: its own commit of that micro-batch, and a replay's of the file,
    have no number above it. In a name of an older program, and for a file with another name, it is that of the rows.
    """
    of_rows: int = pc.max(rows.column("epoch")).as_py()
    number = name.rpartition("_")[2]
    return max(of_rows, int(number)) if number.isdecimal() else of_rows


def with_dead_letters(dead_letters: DeadLetters, tables: Iterable[str]) -> frozenset[str]:
    """Those of some tables that have dead letters of this sink: of the stream, or of a backfill."""
    folders = dead_letters.folders()
    return frozenset(table for table in tables if folder_of(table) in folders)
