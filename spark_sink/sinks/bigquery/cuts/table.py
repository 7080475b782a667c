"""The table ``_cuts`` of a dataset: a row for each published cut. Pure.

A row says how tables are read as of its cut. Where rows are appended, ``bound`` is the largest change sequence number
that belongs to the cut. In ``merge-load`` ``as_of`` is a time of BigQuery's own clock, after the last MERGE of the
micro-batch and before the next one. ``merge`` has neither, because BigQuery applies changes in the background.

An epoch may have several rows, of which the one that was published last counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from connector.core.timestamps import MICROSECOND, format_rfc3339, parse, unix_nanoseconds
from spark_sink.sinks.bigquery.rows.builder import message_type
from spark_sink.sinks.bigquery.tables.partition import TablePartition
from spark_sink.sinks.bigquery.tables.table import (
    MERGE,
    BigQueryTable,
    BigQueryTableOptions,
    Field,
    Mode,
    dataset_of,
)
from spark_sink.sinks.shared.published_cut import PublishedCut, TableAtCut

NAME = "_cuts"
"""The table's name, after the sink's prefix."""

MOST_READ = 10_000
"""The most cuts that are read at once, the newest."""

READ_BY: Mapping[Mode, str] = {
    "append-only": "datastream_metadata.change_sequence_number <= bound",
    "changelog": "_metadata_spanner_commit_timestamp <= commit_timestamp",
    "merge-load": "FOR SYSTEM_TIME AS OF as_of",
    "merge": "cannot be pinned: BigQuery applies changes in the background",
}
"""The way to read a table as of a cut, by mode."""

_OF_A_TABLE = (Field("table", "STRING"), Field("name", "STRING"), Field("incomplete", "STRING"))
_FIELDS = (
    Field("timestamp", "STRING"),
    Field("commit_timestamp", "TIMESTAMP"),
    Field("epoch", "INT64"),
    Field("spool_id", "STRING"),
    Field("sink", "STRING"),
    Field("published_at", "TIMESTAMP"),
    Field("read_by", "STRING"),
    Field("bound", "STRING"),
    Field("as_of", "TIMESTAMP"),
    Field("tables", "STRUCT", repeated=True, fields=_OF_A_TABLE),
)
_LARGEST = "F" * 16


def cuts_table(table_options: BigQueryTableOptions) -> BigQueryTable:
    """The table of the cuts; with a dataset for each schema it is in the default schema's."""
    return BigQueryTable(
        source="",
        dataset=dataset_of("", table_options),
        name=f"{table_options.prefix}{NAME}",
        columns=(),
        metadata=_FIELDS,
        primary_key=(),
        clustering=(),
        partition=TablePartition("published_at", "day"),
    )


def bound_of(timestamp: int) -> str:
    """The largest change sequence number of a change that was committed at or before a timestamp, Unix nanoseconds."""
    return f"{timestamp:016X}/{_LARGEST}/{_LARGEST}"


class CutRow:
    """The row of a published cut.

    Args:
        cut: the cut.
        sink: the sink's name.
        mode: the sink's mode.
        names: the tables that are there, by their names in the source: ``dataset.table``.
    """

    descriptor: DescriptorProto = message_type("Cut", _FIELDS)

    def __init__(self, cut: PublishedCut, sink: str, mode: Mode, names: Mapping[str, str]) -> None:
        self._cut = cut
        self._sink = sink
        self._mode = mode
        self._tables = [(name, names.get(name, ""), table.incomplete) for name, table in cut.tables.items()]

    def message(self) -> bytes:
        """The row for the Storage Write API, without the time of BigQuery's clock."""
        cut = self._cut
        message = _MESSAGE(
            timestamp=format_rfc3339(cut.timestamp),
            commit_timestamp=cut.timestamp // MICROSECOND,
            epoch=cut.epoch,
            spool_id=cut.spool_id,
            sink=self._sink,
            published_at=cut.published_at // MICROSECOND,
            read_by=READ_BY[self._mode],
            tables=[dict(zip(("table", "name", "incomplete"), table, strict=True)) for table in self._tables],
        )
        if self._mode != MERGE:
            message.bound = bound_of(cut.timestamp)
        return bytes(message.SerializeToString(deterministic=True))

    def insert_statement(self, path: str) -> str:
        """Adds the row with the time of BigQuery's clock when it runs."""
        cut = self._cut
        tables = ", ".join(f"({', '.join(map(_quoted, table))})" for table in self._tables)
        values = [
            _quoted(format_rfc3339(cut.timestamp)),
            f"TIMESTAMP_MICROS({cut.timestamp // MICROSECOND})",
            str(cut.epoch),
            _quoted(cut.spool_id),
            _quoted(self._sink),
            f"TIMESTAMP_MICROS({cut.published_at // MICROSECOND})",
            _quoted(READ_BY[self._mode]),
            "NULL",
            "CURRENT_TIMESTAMP()",
            f"ARRAY<STRUCT<`table` STRING, `name` STRING, `incomplete` STRING>>[{tables}]",
        ]
        names = ", ".join(f"`{field.name}`" for field in _FIELDS)
        return f"INSERT INTO `{path}` ({names}) VALUES ({', '.join(values)})"

    def job_id(self, path: str, start: str = "") -> str:
        """The id of the job that adds the row: the same for the same tables in the same state.

        Args:
            path: of the table of the cuts.
            start: the id of the sink's start; empty if an older program has started it.
        """
        named = " ".join([path, self._sink, self._cut.spool_id, str(self._cut.epoch), *filter(None, [start])])
        digest = blake2b(named.encode(), digest_size=16)
        digest.update(repr(self._tables).encode())
        return f"spanner_cdc_cut_{digest.hexdigest()}"


_FILE = FileDescriptorProto(name="spanner_cdc_cut.proto", message_type=[CutRow.descriptor])
_MESSAGE = GetMessageClass(DescriptorPool().AddSerializedFile(_FILE.SerializeToString()).message_types_by_name["Cut"])


@dataclass(frozen=True, slots=True)
class SinkCuts:
    """The cuts of a sink, in SQL: the path of the table, the sink's name and the spool's id."""

    path: str
    sink: str
    spool_id: str

    def select_statement(self) -> str:
        """Selects the newest cuts, oldest first, with the columns that :func:`cut_of` takes."""
        names = ", ".join(f"`{name}`" for name in ("timestamp", "epoch", "published_at", "bound", "as_of", "tables"))
        return (
            f"SELECT {names} FROM (SELECT * FROM `{self.path}` WHERE {self._condition}"
            " QUALIFY ROW_NUMBER() OVER (PARTITION BY epoch ORDER BY published_at DESC) = 1"
            f" ORDER BY epoch DESC LIMIT {MOST_READ}) ORDER BY epoch"
        )

    def newest(self, column: str) -> str:
        """The value of a column that ascends, in the newest cut."""
        return f"(SELECT MAX(`{column}`) FROM `{self.path}` WHERE {self._condition})"

    @property
    def _condition(self) -> str:
        return f"`sink` = {_quoted(self.sink)} AND `spool_id` = {_quoted(self.spool_id)}"


def cut_of(
    spool_id: str,
    timestamp: str,
    epoch: int,
    published_at: datetime,
    bound: str | None,
    as_of: datetime | None,
    tables: Sequence[Mapping[str, str | None]],
) -> PublishedCut:
    """The cut of a row; a table's version is the bound, or the time of BigQuery's clock."""
    version = bound or (format_rfc3339(unix_nanoseconds(as_of)) if as_of is not None else "")
    return PublishedCut(
        timestamp=parse(timestamp),
        epoch=epoch,
        spool_id=spool_id,
        published_at=unix_nanoseconds(published_at),
        tables={
            str(table["table"]): TableAtCut(
                version=version if table["name"] else "", incomplete=table["incomplete"] or ""
            )
            for table in tables
        },
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"
