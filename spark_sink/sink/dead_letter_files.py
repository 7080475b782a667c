"""The file sink's dead letters: the events of a group of epochs that cannot be encoded.

The names of their files depend on the spool and on the group's first epoch alone, like those of the sink's files: a
micro-batch that is done again writes the same letters. What a group has many of goes into a file each few megabytes.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_sink.sink.dead_letters import DeadLetters
from spark_sink.sink.sifting import Sifted

_NAME = re.compile(r"[0-9a-f]+_files_(\d+)_\d+")


def letters_of(spool_id: str, first_epoch: int) -> str:
    """What the names of a group's files of letters begin with, before an underscore; no other sink's begin so."""
    return f"{spool_id}_files_{first_epoch}"


def is_of_files(name: str) -> bool:
    """Whether a file of that name holds letters of the file sink."""
    return _NAME.fullmatch(name) is not None


def discard_others(place: DeadLetters, spool_id: str, first_epochs: Collection[int], names: Collection[str]) -> None:
    """Removes the letters of some groups but for those of some names.

    An attempt before this one may have had others: of a program that could not encode what this one can.

    Raises:
        SinkError: the place refuses.
    """
    groups = {letters_of(spool_id, epoch) for epoch in first_epochs}
    place.discard_all(lambda name: name.rpartition("_")[0] in groups and name not in names)


@dataclass(frozen=True, slots=True)
class Refusals:
    """Events of a table in a group that became dead letters.

    ``why`` is a reason of one of them, ``stopped`` why the table has no others, or empty; ``names`` are the files'.
    """

    table: str
    rows: int
    why: str
    stopped: str
    names: tuple[str, ...]


class TableLetters:
    """Takes the events of a table that cannot be encoded.

    Args:
        place: where they go.
        table: the table's name.
        name: what the names of their files begin with.
        most: bytes of rows that may wait for a file.
        size_of: the bytes that rows take.
    """

    def __init__(
        self, place: DeadLetters, table: str, name: str, *, most: int, size_of: Callable[[pa.RecordBatch], int]
    ) -> None:
        self._place = place
        self._table = table
        self._name = name
        self._most = most
        self._size_of = size_of
        self._rows: list[pa.RecordBatch] = []
        self._reasons: list[str] = []
        self._waiting = self._kept = 0
        self._names: list[str] = []
        self._why = self._stopped = ""

    def take(self, rows: pa.RecordBatch, done: Sifted) -> None:
        """Takes those of the rows that were refused.

        Raises:
            SinkError: the place refuses.
        """
        if not done.refused:
            return
        refused = rows.take(pa.array([index for index, _ in done.refused]))
        if "before" not in refused.schema.names:  # a format without old values has dropped them
            refused = _with_before(refused)
        self._rows.append(refused)
        self._reasons += [why for _, why in done.refused]
        self._why = self._why or self._reasons[0]
        self._stopped = done.stopped
        self._waiting += self._size_of(refused)
        if self._waiting >= self._most:
            self._keep()

    def finish(self) -> Refusals | None:
        """Keeps what waits, durably; what was refused, or None.

        Raises:
            SinkError: the place refuses.
        """
        self._keep()
        if not self._kept:
            return None
        return Refusals(self._table, self._kept, self._why, self._stopped, tuple(self._names))

    def _keep(self) -> None:
        if not self._rows:
            return
        (rows,) = pa.Table.from_batches(self._rows).combine_chunks().to_batches()
        name = f"{self._name}_{len(self._names)}"
        self._place.put(self._table, name, rows, self._reasons)
        self._kept += rows.num_rows
        self._names.append(name)
        self._rows, self._reasons, self._waiting = [], [], 0


def _with_before(rows: pa.RecordBatch) -> pa.RecordBatch:
    names: Sequence[str] = [*rows.schema.names, "before"]
    return pa.RecordBatch.from_arrays([*rows.columns, pa.nulls(rows.num_rows, pa.string())], names=names)
