"""The dead letters of single rows: written before the commit of the others, and known until they are replayed.

The dead letters of a table in a micro-batch are in files ``<spool>_rows_<first>_<last>_<part>``, with the epochs of the
first and the last one. A micro-batch that is repeated, with the same bounds or others, writes those that are in no file
yet. Those of a stopped table (:mod:`spark_sink.sinks.tables.stopped_tables`) have another name.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from connector.spool.backfill.records import backfills
from connector.spool.reading import Spool
from spark_sink.errors import TableError, is_of_value
from spark_sink.failures import SPARK_ERRORS
from spark_sink.sinks.shared.dead_letters import DeadLetters, folder_of
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sinks.tables.rejected.changes import Change, Division, OpenDeadLetter, divided
from spark_sink.sinks.tables.rejected.checks import Checks
from spark_sink.sinks.tables.table_keys import of_key

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

    The rows of a repair in mode merge replace what earlier dead letters of their keys have, also those of other spools.

    Args:
        feed: the spool.
        dead_letters: the sink's dead-letter store.
        mode: that of the tables.
        source: the events of some epochs, in order, from which dead letters are made; None for those of the spool.
    """

    def __init__(
        self,
        feed: Feed,
        dead_letters: DeadLetters,
        mode: str,
        source: Callable[[Sequence[int]], Iterable[pa.RecordBatch]] | None = None,
    ) -> None:
        self._feed = feed
        self._dead_letters = dead_letters
        self._mode = mode
        self._source: Callable[[Sequence[int]], Iterable[pa.RecordBatch]] = source or partial(_events_of, feed.spool)
        self._prefixes: tuple[str, ...] = ()
        self._folders: frozenset[str] | None = None
        self._opened: dict[str, dict[str, OpenDeadLetter]] = {}
        self._others: dict[str, list[OpenDeadLetter]] = {}
        self._left_out: dict[str, frozenset[str]] = {}

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
        self._left_out[table.source] = frozenset()
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
        checks = Checks(events, table)
        division = self._division(table, checks, known)
        if failure is not None and not division.dead_letters and not checks.has_old_values():
            raise failure
        files = self._put(table, division)
        self._left_out[table.source] = division.left_out
        try:
            write(checks.without(division.left_out))
        except SPARK_ERRORS as error:
            if is_of_value(error):  # the table is stopped, and all of its changes become dead letters
                self._discard(table, files)
            raise

    @property
    def _prefix(self) -> str:
        """The begin of the names of files; a delivery is made before there is a spool."""
        return f"{self._feed.spool.header().spool_id}{ROWS}"

    def rejected(self, table: str, first: int, last: int) -> Sequence[OpenDeadLetter]:
        """The open dead letters of a table that was written, of these epochs, without those that are markers."""
        found = self._opened.get(table, {}).values()
        return [one for one in found if first <= one.epoch <= last and not one.is_marker]

    def left_out(self, table: str) -> frozenset[str]:
        """The uuids of the events that the newest write of a table has left out."""
        return self._left_out.get(table, frozenset())

    def opened(self, table: LakeTable, spark: SparkSession) -> Sequence[OpenDeadLetter]:
        """The open dead letters of a table. The store is searched once, because only this process adds to it."""
        if self._folders is None:
            others = rows_of_spools(self._feed.stream) if self._mode == "merge" and self._feed.is_repair else []
            self._prefixes = tuple(sorted({self._prefix, *others}))
            self._folders = self._dead_letters.folders(*self._prefixes)
        if table.source not in self._opened:
            there = folder_of(table.source) in self._folders
            prefixes = self._prefixes if there else ()
            found = open_dead_letters(self._dead_letters, table, prefixes, spark, self._mode)
            self._opened[table.source] = {one.uuid: one for one in found.pop(self._prefix, [])}
            self._others[table.source] = [one for of_spool in found.values() for one in of_spool]
        return [*self._opened[table.source].values(), *self._others[table.source]]

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
        """Writes dead letters that are in no file yet, durably; returns the names of the files."""
        known = self._opened[table.source]
        reasons = {change.uuid: why for change, why in division.dead_letters if change.uuid not in known}
        if not reasons:
            return []
        epochs = sorted({change.epoch for change, _ in division.dead_letters if change.uuid in reasons})
        name = f"{self._prefix}{epochs[0]:016d}_{epochs[-1]:016d}"
        taken = {file.name for file in self._dead_letters.files(table.source, name)}
        free = (numbered for part in count() if (numbered := f"{name}_{part:04d}") not in taken)
        names: list[str] = []
        for rows in self._batches(table.source, epochs, reasons):
            texts = [reasons[uuid] for uuid in rows.column("uuid").to_pylist()]
            names.append(next(free))
            self._dead_letters.put(table.source, names[-1], rows, texts)
        known |= {change.uuid: opened(change, why) for change, why in division.dead_letters if change.uuid in reasons}
        return names

    def _discard(self, table: LakeTable, names: Sequence[str]) -> None:
        """Removes files of dead letters that were written before a commit which is not there."""
        for file in self._dead_letters.files(table.source, self._prefix) if names else []:
            if file.name in names:
                for uuid in self._dead_letters.read(file)[0].column("uuid").to_pylist():
                    self._opened[table.source].pop(uuid, None)
                self._dead_letters.remove(file)

    def _batches(self, table: str, epochs: Sequence[int], reasons: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        """The rows of dead letters, some megabytes in each batch, in order."""
        wanted = pa.array(sorted(reasons), pa.string())
        waiting: list[pa.RecordBatch] = []
        for batch in self._source(epochs):
            is_rejected = pc.and_(pc.equal(batch.column("object"), table), pc.is_in(batch.column("uuid"), wanted))
            if (rows := batch.filter(is_rejected)).num_rows:
                waiting.append(rows)
            if sum(rows.nbytes for rows in waiting) >= _FILE_BYTES:
                yield _combined(waiting)
                waiting = []
        if waiting:
            yield _combined(waiting)


def rows_of_spools(stream: Spool) -> list[str]:
    """The starts of the names of files with dead letters of single rows: of a change stream, and of its backfills."""
    spools = [stream, *(one.spool for one in backfills(stream))]
    return [f"{spool.header().spool_id}{ROWS}" for spool in spools]


def open_dead_letters(
    dead_letters: DeadLetters, table: LakeTable, prefixes: Sequence[str], spark: SparkSession, mode: str
) -> dict[str, list[OpenDeadLetter]]:
    """The dead letters of a table in files whose names start so, by the start of the name.

    Those of a table that was dropped before this one was created, with another key, are left out: no row has that key.
    """
    found: dict[str, dict[str, OpenDeadLetter]] = defaultdict(dict)
    files = dead_letters.files(table.source, *prefixes) if prefixes else []
    for file in (one for one in files if one.count):
        rows, texts = dead_letters.read(file)
        reasons = dict(zip(rows.column("uuid").to_pylist(), texts, strict=True))
        prefix = next(one for one in prefixes if file.name.startswith(one))
        events = spark.createDataFrame(pa.Table.from_batches([rows.select(EVENT_COLUMNS)]))
        changes = Checks(events if mode == "append" else of_key(events, table), table).all()
        found[prefix] |= {change.uuid: opened(change, reasons[change.uuid]) for change in changes}
    return {prefix: list(of_spool.values()) for prefix, of_spool in found.items()}


def opened(change: Change, why: str) -> OpenDeadLetter:
    """The dead letter of a change."""
    return OpenDeadLetter(change.uuid, change.epoch, change.sequence, change.key, why)


def _events_of(spool: Spool, epochs: Sequence[int]) -> Iterator[pa.RecordBatch]:
    for epoch in epochs:
        for file in spool.manifest(epoch).files:
            yield from spool.batches(file)


def _combined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return rows


def _too_many(table: LakeTable) -> TableError:
    return TableError(
        f"table {table.source} has more than {MOST} rows that cannot be written to table {table.name}, or that wait"
        " for one of these",
        hint="Look at the types of its columns here, and at its dead letters.",
    )
