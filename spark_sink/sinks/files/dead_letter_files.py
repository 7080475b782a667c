"""The file sink's dead letters: the events of a group of epochs that cannot be encoded.

The names of their files depend only on the spool and on the group's first epoch, like those of the sink's files: a
micro-batch that is repeated writes the same dead letters. Many of them are split into files of a few megabytes.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

import orjson
import pyarrow as pa

from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.reports import TaskReport
from spark_sink.sinks.shared.row_encoding import EncodingResult
from spark_sink.sinks.shared.row_slices import size_of


def dead_letter_prefix(spool_id: str, first_epoch: int) -> str:
    """The prefix of the names of a group's files of dead letters, before an underscore; unique to this sink."""
    return f"{spool_id}_files_{first_epoch}"


def discard_others(store: DeadLetters, spool_id: str, first_epochs: Collection[int], names: Collection[str]) -> None:
    """Removes the dead letters of some groups, except those of the given names.

    An earlier attempt may have had others: of a program that could not encode what this one can.

    Raises:
        SinkError: the disk or Cloud Storage refuses.
    """
    groups = {dead_letter_prefix(spool_id, epoch) for epoch in first_epochs}
    store.discard_all(lambda name: name.rpartition("_")[0] in groups and name not in names)


@dataclass(slots=True)
class TableDeadLetters:
    """Writes the events of a table that cannot be encoded as dead letters.

    Attributes:
        store: where they go.
        table: the table's name.
        name: what the names of their files begin with.
        first: the first epoch of the table's group.
        most: bytes of rows that may wait for a file.
    """

    store: DeadLetters
    table: str
    name: str
    first: int
    most: int
    _rows: list[pa.RecordBatch] = field(default_factory=list)
    _reasons: list[str] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _waiting: int = 0
    _written: int = 0
    _why: str = ""
    _stopped: bool = False

    def add(self, rows: pa.RecordBatch, result: EncodingResult) -> None:
        """Adds those of the rows that were rejected.

        Raises:
            SinkError: the disk or Cloud Storage refuses.
        """
        if not result.rejected:
            return
        rejected = rows.take(pa.array([index for index, _ in result.rejected]))
        if "before" not in rejected.schema.names:  # it was dropped for a format without old values
            rejected = rejected.append_column("before", pa.nulls(rejected.num_rows, pa.string()))
        self._rows.append(rejected)
        self._reasons += [why for _, why in result.rejected]
        self._why = self._why or self._reasons[0]
        self._stopped = bool(result.stopped)
        self._waiting += size_of(rejected)
        if self._waiting >= self.most:
            self._write()

    def finish(self) -> TaskReport | None:
        """Writes the rows that wait, durably; reports what was rejected, with the names of the files, or returns None.

        Raises:
            SinkError: the disk or Cloud Storage refuses.
        """
        self._write()
        if not self._written:
            return None
        return TaskReport(
            self.first,
            self.table,
            rejected=self._written,
            why=self._why,
            stopped=self._stopped,
            own=orjson.dumps(self._names).decode(),
        )

    def _write(self) -> None:
        if not self._rows:
            return
        (rows,) = pa.Table.from_batches(self._rows).combine_chunks().to_batches()
        name = f"{self.name}_{len(self._names)}"
        self.store.put(self.table, name, rows, self._reasons)
        self._written += rows.num_rows
        self._names.append(name)
        self._rows, self._reasons, self._waiting = [], [], 0
