"""Writes a part of a micro-batch into BigQuery: segments in order, their rows table by table.

What differs between the modes is what a table's rows are given to (:class:`RowTaker`): the default stream, a pending
stream, or a fold that a load job takes. Rows that are refused are kept as dead letters, durably, before
anybody is told that the part is written.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Protocol

import orjson
import pyarrow as pa

from connector.core.schemas import TableSchema
from connector.errors import SpoolError
from connector.spool.manifest import SegmentFile
from connector.spool.reading import Spool
from spark_sink.bigquery.client import BigQueryClient
from spark_sink.bigquery.commit_log import Ledger
from spark_sink.bigquery.loads import Loading
from spark_sink.bigquery.rows import RowBuilder
from spark_sink.bigquery.table import MERGE, MERGE_LOAD, BigQueryTable, BigQueryTarget, Shape, bigquery_table
from spark_sink.bigquery.type_changes import FormerTypes, Refusals
from spark_sink.bigquery.writer import BigQueryWriter
from spark_sink.errors import SinkError
from spark_sink.files.writer import by_table, pieces_of, size_of
from spark_sink.sink.dead_letters import DeadLetters
from spark_sink.source.admission import packed

PIECE = 4 * 1024 * 1024
"""Bytes of rows, as they are in the spool, that are written at a time."""

_REQUEST = 8 * 1024 * 1024
"""Bytes of rows in a request, or one row that has more (:data:`spark_sink.bigquery.rows.LARGEST`)."""

_LINES = 1
"""To be raised when a row is loaded in another way: all parts of a batch are then loaded and merged anew, or none."""

_WAITING = 64 * 1024 * 1024
"""Bytes of all tables' rows that wait to be sent."""


@dataclass(frozen=True, slots=True)
class PinnedOptions:
    """The options that decide what is written, as they are pinned."""

    project: str
    shape: Shape
    part_bytes: int

    def to_text(self) -> str:
        """As it is pinned in the spool and in the checkpoint."""
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def from_text(cls, text: str) -> "PinnedOptions":
        """Reads what :meth:`to_text` wrote; where an option was not there yet, it has its default.

        Raises:
            SpoolError: there is an option that this program does not know.
        """
        try:
            node = orjson.loads(text)
            return cls(node["project"], Shape(**node["shape"]), node["part_bytes"])
        except (KeyError, TypeError, ValueError) as error:
            raise SpoolError(
                f"options of the BigQuery sink that this program does not know are pinned: {text}",
                hint="Use the newer spanner-cdc that wrote them.",
            ) from error


@dataclass(frozen=True, slots=True)
class Part:
    """Some segments of a micro-batch; ``number`` counts from 0.

    Of ``tables`` alone the rows are written, where they are not None: another task writes those of others.
    """

    number: int
    files: tuple[SegmentFile, ...]
    tables: frozenset[str] | None = None

    @property
    def bytes(self) -> int:
        """Bytes of its segments."""
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A table of a micro-batch: the key of its newest schema, and why it is stopped, if it is."""

    schema_key: str
    stopped: str | None


@dataclass(frozen=True, slots=True)
class Told:
    """What was written of a table: rows taken and refused, and what they are in, if others have to know it.

    ``wrote`` is the pending stream, or the staging tables as text (:func:`spark_sink.bigquery.loads.to_text`);
    ``stopped`` is why the table is, or empty; ``letters`` is what the names of this attempt's letters begin with, empty
    where another attempt's take the place of these.
    """

    table: str
    schema_key: str
    part: int
    rows: int
    refused: int
    wrote: str
    stopped: str
    letters: str


@dataclass(frozen=True, slots=True)
class PartWriter:
    """Writes the parts of the micro-batch that begins with epoch ``first``."""

    spool: str
    spool_id: str
    first: int
    target: BigQueryTarget
    options: PinnedOptions
    tables: Mapping[str, TablePlan]
    dead_letters: str

    def write(self, part: Part) -> Iterator[Told]:
        """Writes a part; tells of each table when all of its rows are taken, or kept as dead letters.

        Raises:
            SinkError: BigQuery or the dead-letter place refuses.
            SpoolError: the spool cannot be read.
        """
        spool = Spool.at(self.spool)
        writers: dict[str, TableWriter] = {}
        for file in part.files:
            for batch in spool.batches(file):
                for table, rows in by_table(batch):
                    if part.tables is not None and table not in part.tables:
                        continue
                    if table not in writers:
                        writers[table] = self._table(spool, table, part)
                    writers[table].extend(rows)
                if sum(writer.waiting for writer in writers.values()) > _WAITING:
                    for writer in writers.values():
                        writer.flush()
            for writer in writers.values():
                writer.rest()
        for table, writer in writers.items():
            rows, refused, wrote = writer.finish()
            plan = self.tables[table]
            letters = "" if self.options.shape.merges else writer.letters
            yield Told(table, plan.schema_key, part.number, rows, refused, wrote, plan.stopped or "", letters)

    def _table(self, spool: Spool, table: str, part: Part) -> "TableWriter":
        plan = self.tables[table]
        name = f"{letters_of(self.spool_id, self.first)}_{part.number}"
        letters = DeadLetters(self.dead_letters)
        if not self.options.shape.merges and Ledger(spool).find(self.first, table) is not None:
            return TableWriter(table, letters, name, _Done())
        # What another attempt appends may be other rows: the driver keeps the letters of those that count.
        kept = name if self.options.shape.merges else f"{name}_{secrets.token_hex(8)}"
        if plan.stopped is not None:
            return TableWriter(table, letters, kept, _Stopped(plan.stopped))
        made = bigquery_table(spool.schema(plan.schema_key), self.options.shape)
        digest = blake2b(f"{_LINES} {self.options.to_text()}".encode(), digest_size=4).hexdigest()
        rows = rows_into(self.target, made, self.options.shape, f"{name}_{digest}", spool.schema)
        return TableWriter(table, letters, kept, rows)


class RowTaker(Protocol):
    """What takes a table's rows."""

    def take(self, rows: pa.RecordBatch) -> Refusals:
        """Takes rows of about :data:`PIECE` bytes; returns the index of each that is refused, and why."""

    @property
    def full(self) -> bool:
        """Whether it wants to :meth:`rest` as soon as an epoch is over."""

    def rest(self) -> None:
        """An epoch is over: what was taken so far may be made ready by itself."""

    def end(self) -> str:
        """All were given; returns the name of what they are in, if others have to know it."""


class _Restless:
    """What takes rows and never is full."""

    full = False

    def rest(self) -> None:
        """Nothing."""


class TableWriter:
    """Gives a table's rows on, many at a time.

    Args:
        table: its name in the source.
        letters: where refused rows go.
        name: of their files.
        rows: takes rows.
    """

    def __init__(self, table: str, letters: DeadLetters, name: str, rows: RowTaker) -> None:
        self.waiting = 0
        self._table = table
        self.letters = name
        self._place = letters
        self._rows = rows
        self._batches: list[pa.RecordBatch] = []
        self._pieces = self._taken = self._refused = 0

    def extend(self, rows: pa.RecordBatch) -> None:
        """Adds rows."""
        self._batches.append(rows)
        self.waiting += size_of(rows)
        if self.waiting >= PIECE:
            self.flush()

    def flush(self) -> None:
        """Gives on the rows that wait."""
        if not self._batches:
            return
        waiting = pa.Table.from_batches(self._batches).combine_chunks()
        self._batches, self.waiting = [], 0
        for batch in waiting.to_batches():
            for piece in pieces_of(batch, PIECE):
                refused = self._rows.take(piece)
                self._keep(piece, refused)
                self._taken += piece.num_rows - len(refused)
                self._pieces += 1

    def rest(self) -> None:
        """An epoch is over, whose rows were all added."""
        if self._rows.full:
            self.flush()
            self._rows.rest()

    def finish(self) -> tuple[int, int, str]:
        """Ends; returns how many rows were taken, how many were refused, and what they are in."""
        self.flush()
        return self._taken, self._refused, self._rows.end()

    def _keep(self, rows: pa.RecordBatch, refused: Refusals) -> None:
        if refused:
            indexes, reasons = zip(*sorted(refused), strict=True)
            self._place.put(self._table, f"{self.letters}_{self._pieces}", rows.take(pa.array(indexes)), reasons)
            self._refused += len(refused)


class _Stopped(_Restless):
    """Takes nothing."""

    def __init__(self, why: str) -> None:
        self._why = why

    def take(self, rows: pa.RecordBatch) -> Refusals:
        return [(index, self._why) for index in range(rows.num_rows)]

    def end(self) -> str:
        return ""


class _Done(_Restless):
    """Takes what was written before."""

    def take(self, rows: pa.RecordBatch) -> Refusals:
        return []

    def end(self) -> str:
        return ""


class _Streamed(_Restless):
    """Appends rows to a stream; ``pending`` is whether it is one of its own, whose rows nobody sees yet."""

    def __init__(self, writer: BigQueryWriter, builder: RowBuilder, *, pending: bool) -> None:
        self._writer = writer
        self._builder = builder
        self._pending = writer.create_pending() if pending else ""
        self._offset = 0

    def take(self, rows: pa.RecordBatch) -> Refusals:
        built = self._builder.build(rows, now=time.time_ns())
        refused = [(one.index, one.reason) for one in built.refused]
        values: list[bytes] = built.rows.to_pylist()
        for run in _requests(values):
            found = self._append(values[run.start : run.stop])
            refused += [(int(built.indexes[run[index]]), why) for index, why in found]
        return refused

    def _append(self, values: Sequence[bytes]) -> Refusals:
        """Appends those of some rows that BigQuery takes; returns the others."""
        refused: Refusals = []
        indexes = list(range(len(values)))
        while indexes:
            offset = self._offset if self._pending else None
            stream = self._pending or self._writer.default_stream
            rows = [values[index] for index in indexes]
            found = dict(self._writer.append(stream, self._builder.descriptor, rows, offset))
            if not found:
                self._offset += len(rows)
                break
            refused += [(indexes[index], why) for index, why in found.items()]
            indexes = [at for index, at in enumerate(indexes) if index not in found]
        return refused

    def end(self) -> str:
        if not self._pending:
            return ""
        rows = self._writer.finalize(self._pending)
        if rows != self._offset:
            raise SinkError(
                f"BigQuery has {rows} rows of {self._offset} that were written",
                hint="Nothing of them is visible. Run it again: nothing is lost.",
            )
        return self._pending if rows else ""


def _requests(rows: Sequence[bytes]) -> Iterator[range]:
    """Runs of rows that a request has room for: numbers in arrays take up to five times what they took as text."""
    first = size = 0
    for number, row in enumerate(rows):
        if size and size + len(row) > _REQUEST:
            yield range(first, number)
            first, size = number, 0
        size += len(row)
    if rows:
        yield range(first, len(rows))


class _Sifted:
    """Gives on the rows whose values can be read by the table's types."""

    def __init__(self, rows: RowTaker, types: FormerTypes) -> None:
        self._rows = rows
        self._types = types

    def take(self, rows: pa.RecordBatch) -> Refusals:
        fitting, indexes, refused = self._types.sift(rows)
        found = self._rows.take(fitting) if indexes else []
        return [*refused, *((indexes[index], why) for index, why in found)]

    @property
    def full(self) -> bool:
        return self._rows.full

    def rest(self) -> None:
        self._rows.rest()

    def end(self) -> str:
        return self._rows.end()


def rows_into(
    target: BigQueryTarget, table: BigQueryTable, shape: Shape, name: str, schema: Callable[[str], TableSchema]
) -> RowTaker:
    """What takes a table's rows, in the shape's mode.

    Args:
        target: where.
        table: the table.
        shape: the options that it is made by.
        name: of these rows and these options alone.
        schema: the schema that a key names.
    """
    rows: RowTaker
    if shape.mode == MERGE_LOAD:
        rows = Loading(BigQueryClient(target, failure=SinkError), table, name)
    else:
        writer, builder = BigQueryWriter(target, table), RowBuilder(table, shape.mode)
        rows = _Streamed(writer, builder, pending=shape.mode != MERGE)
    return _Sifted(rows, FormerTypes(table, shape, schema))


def letters_of(spool_id: str, first: int) -> str:
    """What the names of a micro-batch's files of letters begin with, before an underscore."""
    return f"{spool_id}_{first}"


def parts_of(files: Sequence[SegmentFile], most: int) -> list[Part]:
    """Cuts segments into parts of about ``most`` bytes, in order."""
    runs = packed([file.bytes for file in files], most)
    return [Part(number, tuple(files[run.start : run.stop])) for number, run in enumerate(runs)]
