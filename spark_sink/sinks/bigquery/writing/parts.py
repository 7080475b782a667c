"""Writes a part of a micro-batch into BigQuery: segments in order, their rows table by table.

Rejected rows are durable as dead letters before the part is reported as written.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b

import orjson

from connector.errors import SpoolError
from connector.spool.manifest import SegmentFile
from connector.spool.reading import Spool
from connector.spool.sink_start import start_of_sink
from spark_sink.sinks.bigquery.commit_log import CommitLog
from spark_sink.sinks.bigquery.config import CONSUMER, FORMER_NAMES
from spark_sink.sinks.bigquery.tables.table import (
    BigQueryTableOptions,
    BigQueryTarget,
    bigquery_table,
)
from spark_sink.sinks.bigquery.writing.table_rows import StoppedRows, TableWriter, WrittenRows, row_writer
from spark_sink.sinks.shared.completing.epoch_rows import EpochRows
from spark_sink.sinks.shared.completing.spanner_rows import Completion
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.reports import TaskReport
from spark_sink.sinks.shared.row_slices import by_table
from spark_sink.sources.changes.admission import packed

_LINES = 1
"""The version of the lines of a load. Increase it when a row is loaded differently, so that jobs of an earlier version
are not taken for the present ones."""

_BUFFER = 64 * 1024 * 1024
"""The most bytes of rows that are buffered, of all tables together."""

_NEWER = ("layout", "update_pairs")
"""Options that 0.2.0 did not have. Rows of a micro-batch that it started keep their names, by which jobs are known."""


@dataclass(frozen=True, slots=True)
class PinnedOptions:
    """The options that decide what is written, as they are pinned for a micro-batch."""

    project: str
    table_options: BigQueryTableOptions
    part_bytes: int

    def to_text(self) -> str:
        """The text that the spool and the checkpoint hold."""
        options = asdict(self.table_options)
        for name in _NEWER:
            if not options[name]:
                del options[name]  # as programs that do not know it write it
        node = {"project": self.project, "shape": options, "part_bytes": self.part_bytes}
        return orjson.dumps(node, option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def from_text(cls, text: str) -> "PinnedOptions":
        """Parses a text of :meth:`to_text`; a missing option has its default.

        Raises:
            SpoolError: there is an unknown option.
        """
        try:
            node = orjson.loads(text)
            return cls(node["project"], BigQueryTableOptions(**node["shape"]), node["part_bytes"])
        except (KeyError, TypeError, ValueError) as error:
            raise SpoolError(
                f"the pinned options of the BigQuery sink are not known to this version: {text}",
                hint="Use the newer spanner-cdc that wrote them.",
            ) from error


@dataclass(frozen=True, slots=True)
class Part:
    """Some segments of a micro-batch; ``number`` counts from 0.

    Only rows of ``tables`` are written, unless that is None; another task writes those of the other tables.
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
    """A table of a micro-batch: the key of its newest schema, and why it is stopped; None where it is not."""

    schema_key: str
    stopped: str | None


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A task's report of a table in a part, with what only this sink's driver needs.

    Attributes:
        report: what became of the rows.
        schema_key: the key of the table's newest schema.
        part: the part's number.
        wrote: the pending stream, or the staging tables as text
        (:func:`spark_sink.sinks.bigquery.merging.loads.to_text`);
            empty where the driver has nothing to do.
        dead_letters: the prefix of the names of this attempt's dead letters; empty where those of another attempt
            replace them.
        options: those of the micro-batch, as text.
    """

    report: TaskReport
    schema_key: str
    part: int
    wrote: str
    dead_letters: str
    options: str

    @classmethod
    def of(cls, report: TaskReport) -> "WrittenPart":
        """The part of a report of :meth:`PartWriter.write`."""
        return cls(report, *orjson.loads(report.own))


@dataclass(frozen=True, slots=True)
class PartWriter:
    """Writes the parts of the micro-batch from epoch ``first`` on."""

    spool: str
    spool_id: str
    first: int
    target: BigQueryTarget
    options: PinnedOptions
    tables: Mapping[str, TablePlan]
    dead_letters: str
    completion: Completion | None = None
    consumer: str = CONSUMER

    def write(self, part: Part) -> Iterator[TaskReport]:
        """Writes a part; reports each table when all of its rows are written, or kept as dead letters.

        Raises:
            SinkError: BigQuery or the dead-letter store fails.
            SpoolError: the spool cannot be read.
        """
        spool = Spool.at(self.spool)
        epochs = EpochRows(spool, self.completion)
        writers: dict[str, TableWriter] = {}
        for file in part.files:
            for batch in epochs.batches(file, part.tables):
                for table, rows in by_table(batch):
                    if part.tables is not None and table not in part.tables:
                        continue
                    if table not in writers:
                        writers[table] = self._table(spool, table, part)
                    writers[table].extend(rows)
                if sum(writer.waiting for writer in writers.values()) > _BUFFER:
                    for writer in writers.values():
                        writer.flush()
            for writer in writers.values():
                writer.end_epoch()
        for table, writer in writers.items():
            rows, rejected, wrote = writer.finish()
            plan = self.tables[table]
            dead_letters = "" if self.options.table_options.merges else writer.dead_letters
            own = (plan.schema_key, part.number, wrote, dead_letters, self.options.to_text())
            yield TaskReport(
                self.first,
                table,
                rows,
                rejected,
                plan.stopped or "",
                plan.stopped is not None,
                epochs.incomplete[table],
                orjson.dumps(own).decode(),
            )

    def _table(self, spool: Spool, table: str, part: Part) -> "TableWriter":
        plan = self.tables[table]
        name = f"{dead_letter_prefix(self.spool_id, self.first)}_{part.number}"
        dead_letters = DeadLetters(self.dead_letters, former=FORMER_NAMES)
        merges = self.options.table_options.merges
        entry = None if merges else CommitLog(spool, self.consumer).find(self.first, table)
        if entry is not None:
            counting = [f"{name}_"]
            if entry.dead_letters is not None:
                counting = [f"{one}_" for one in entry.dead_letters if one.startswith(f"{name}_")]
            rejected = sum(file.count for file in dead_letters.files(table, *counting)) if counting else 0
            return TableWriter(table, dead_letters, name, WrittenRows(), rejected=rejected)
        # Another attempt may append other rows; the driver keeps the dead letters of the one that counts.
        kept = name if merges else f"{name}_{secrets.token_hex(8)}"
        if plan.stopped is not None:
            return TableWriter(table, dead_letters, kept, StoppedRows(plan.stopped))
        made = bigquery_table(spool.schema(plan.schema_key), self.options.table_options)
        start = start_of_sink(spool, self.consumer)
        named = " ".join([str(_LINES), self.options.to_text(), *([start.id] if start else [])])
        digest = blake2b(named.encode(), digest_size=4).hexdigest()
        rows = row_writer(self.target, made, self.options.table_options, f"{name}_{digest}", spool)
        return TableWriter(table, dead_letters, kept, rows)


def dead_letter_prefix(spool_id: str, first: int) -> str:
    """The prefix of the names of a micro-batch's files of dead letters; an underscore follows."""
    return f"{spool_id}_{first}"


def parts_of(files: Sequence[SegmentFile], most: int) -> list[Part]:
    """Splits segments into parts of about ``most`` bytes, in order."""
    runs = packed([file.bytes for file in files], most)
    return [Part(number, tuple(files[run.start : run.stop])) for number, run in enumerate(runs)]
