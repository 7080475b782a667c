"""The dead letters of single rows: written before the commit of the others, and known until they are replayed.

The dead letters of a table in a micro-batch are in files ``<spool>_rows_<first>_<last>_<part>``, with the epochs of the
first and the last one, so that a micro-batch that is repeated writes the same files. Those of a stopped table
(:mod:`spark_sink.sinks.tables.stopped_tables`) have another name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from connector.spool.reading import Spool
from spark_sink.errors import TableError, is_of_value
from spark_sink.failures import SPARK_ERRORS
from spark_sink.sinks.shared.dead_letters import DeadLetters, folder_of
from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sinks.tables.rejected.changes import Change, Division, OpenDeadLetter, divided
from spark_sink.sinks.tables.rejected.checks import Checks

ROWS = "_rows_"
"""In the names of files with dead letters of single rows, after the spool's id."""

MOST = 10_000
"""Dead letters of single rows that a table can have at a time: with more it is stopped."""

_MOST_CHANGES = 10 * MOST
"""Changes of rows with dead letters in a micro-batch: with more their table is stopped."""

_FILE_BYTES = 8 * 1024 * 1024
"""Bytes of events in a file, unless one batch of a segment has more."""

EVENT_COLUMNS = ("object", "uuid", "change_sequence_number", "source_metadata", "payload", "epoch")
"""The columns of an event that a table needs."""


class NoDeadLetters:
    """No dead letters: a row that a table cannot take stops it."""

    def write(self, table: LakeTable, events: DataFrame, write: Callable[[DataFrame], None]) -> None:
        """Writes events of a table."""
        del table
        write(events)

    def opened(self, table: LakeTable, spark: SparkSession) -> Sequence[OpenDeadLetter]:
        """None."""
        del table, spark
        return []


class RejectedRows(NoDeadLetters):
    """The dead letters of single rows of a spool; the process that delivers from it writes them.

    Args:
        spool: the spool.
        dead_letters: the sink's dead-letter store.
        mode: that of the tables.
    """

    def __init__(self, spool: Spool, dead_letters: DeadLetters, mode: str) -> None:
        self._spool = spool
        self._dead_letters = dead_letters
        self._mode = mode
        self._folders: frozenset[str] | None = None
        self._opened: dict[str, dict[str, OpenDeadLetter]] = {}

    def write(self, table: LakeTable, events: DataFrame, write: Callable[[DataFrame], None]) -> None:
        """Writes events of a table; those that it cannot take become dead letters before that.

        Args:
            table: the table.
            events: events that the table lacks.
            write: commits events of the table.

        Raises:
            TableError: there are too many dead letters.
            PySparkException, Py4JError: see ``write``.
            SinkError: the dead-letter store cannot be read or written.
        """
        known = self.opened(table, events.sparkSession)
        failure: Exception | None = None
        if not known or self._mode == "append":
            try:
                write(events)
            except SPARK_ERRORS as error:
                if not is_of_value(error):
                    raise
                failure = error
            else:
                return
        checks = Checks(events, table, self._mode)
        division = self._division(table, checks, known)
        if failure is not None and not division.dead_letters and not checks.has_old_values():
            raise failure
        files = self._put(table, division)
        try:
            write(checks.without(division.left_out))
        except SPARK_ERRORS as error:
            if is_of_value(error):  # the table is stopped, and all of its changes become dead letters
                self._discard(table, division, files)
            raise

    @property
    def _prefix(self) -> str:
        """The begin of the names of files; a delivery is made before there is a spool."""
        return f"{self._spool.header().spool_id}{ROWS}"

    def rejected(self, table: str, first: int, last: int) -> Sequence[OpenDeadLetter]:
        """The open dead letters of a table that was written, of these epochs."""
        return [one for one in self._opened.get(table, {}).values() if first <= one.epoch <= last]

    def opened(self, table: LakeTable, spark: SparkSession) -> Sequence[OpenDeadLetter]:
        """The open dead letters of a table. The store is searched once, because only this process adds to it."""
        if self._folders is None:
            self._folders = self._dead_letters.folders(self._prefix)
        if table.source not in self._opened:
            there = folder_of(table.source) in self._folders
            found = open_dead_letters(self._dead_letters, table, self._prefix, spark, self._mode) if there else []
            self._opened[table.source] = {one.uuid: one for one in found}
        return list(self._opened[table.source].values())

    def _division(self, table: LakeTable, checks: Checks, known: Sequence[OpenDeadLetter]) -> Division:
        rejected = {one.uuid: one for one in checks.rejected(MOST + 1)}
        keys = set[str]()
        if self._mode != "append":
            keys = {one.key for one in rejected.values()} | {one.key for one in known}
        changes = checks.of_keys(keys, _MOST_CHANGES + 1) if keys else []
        if len(rejected) > MOST or len(changes) > _MOST_CHANGES:
            raise _too_many(table)
        division = divided(self._mode, (*changes, *rejected.values()), known)
        if len({one.uuid for one in known} | {change.uuid for change, _ in division.dead_letters}) > MOST:
            raise _too_many(table)
        return division

    def _put(self, table: LakeTable, division: Division) -> list[str]:
        """Writes dead letters, durably; returns the names of the files."""
        if not division.dead_letters:
            return []
        reasons = {change.uuid: why for change, why in division.dead_letters}
        epochs = sorted({change.epoch for change, _ in division.dead_letters})
        name = f"{self._prefix}{epochs[0]:016d}_{epochs[-1]:016d}"
        names: list[str] = []
        for part, rows in enumerate(self._batches(table.source, epochs, reasons)):
            texts = [reasons[uuid] for uuid in rows.column("uuid").to_pylist()]
            names.append(f"{name}_{part:04d}")
            self._dead_letters.put(table.source, names[-1], rows, texts)
        self._opened[table.source] |= {change.uuid: opened(change, why) for change, why in division.dead_letters}
        return names

    def _discard(self, table: LakeTable, division: Division, names: Sequence[str]) -> None:
        """Removes dead letters that were written before a commit which is not there."""
        for change, _ in division.dead_letters:
            self._opened[table.source].pop(change.uuid, None)
        for name in names:
            self._dead_letters.discard(table.source, name.rpartition("_")[0])

    def _batches(self, table: str, epochs: Sequence[int], reasons: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        """The rows of dead letters, some megabytes in each batch, in order."""
        wanted = pa.array(sorted(reasons), pa.string())
        waiting: list[pa.RecordBatch] = []
        for epoch in epochs:
            for file in self._spool.manifest(epoch).files:
                for batch in self._spool.batches(file):
                    is_rejected = pc.and_(
                        pc.equal(batch.column("object"), table), pc.is_in(batch.column("uuid"), wanted)
                    )
                    if (rows := batch.filter(is_rejected)).num_rows:
                        waiting.append(rows)
                    if sum(rows.nbytes for rows in waiting) >= _FILE_BYTES:
                        yield _combined(waiting)
                        waiting = []
        if waiting:
            yield _combined(waiting)


def open_dead_letters(
    dead_letters: DeadLetters, table: LakeTable, prefix: str, spark: SparkSession, mode: str
) -> list[OpenDeadLetter]:
    """The dead letters of a table in files whose names start so."""
    found: dict[str, OpenDeadLetter] = {}
    for file in dead_letters.files(table.source, prefix):
        rows, texts = dead_letters.read(file)
        reasons = dict(zip(rows.column("uuid").to_pylist(), texts, strict=True))
        events = spark.createDataFrame(pa.Table.from_batches([rows.select(EVENT_COLUMNS)]))
        for change in Checks(events, table, mode).all():
            found[change.uuid] = opened(change, reasons[change.uuid])
    return list(found.values())


def opened(change: Change, why: str) -> OpenDeadLetter:
    """The dead letter of a change."""
    return OpenDeadLetter(change.uuid, change.epoch, change.sequence, change.key, why)


def _combined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return rows


def _too_many(table: LakeTable) -> TableError:
    return TableError(
        f"table {table.source} has more than {MOST} rows that cannot be written to table {table.name}, or that wait"
        " for one of these",
        hint="Look at the types of its columns here, and at its dead letters.",
    )
