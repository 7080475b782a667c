"""``spanner-cdc verify``: compares what a sink has delivered with Spanner's rows as of one timestamp.

Both sides are divided into buckets on disk, by a hash of the rows' keys, and compared a bucket at a time.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from connector.config import resolve_timestamp
from connector.config.loading import Config
from connector.config.replicas import Replica
from connector.config.sinks import sink_type
from connector.config.values import parse_timestamp
from connector.core.changes import integers, sequence_numbers
from connector.core.dialects import Dialect
from connector.core.schemas import TableSchema
from connector.core.timestamps import format_rfc3339
from connector.errors import ConfigurationError, SpannerCdcError
from connector.log import Log
from connector.reader.change_stream import opened
from connector.verify.buckets import Buckets, buckets_for
from connector.verify.rows import RowChange, RowDifference, RowKind, differences, key_of, parsed, rows_after
from connector.verify.source_rows import SourceRows

MOST_SHOWN = 1000
"""Rows that differ whose keys are kept; those beyond are counted."""

LOGGED_ROWS = 500_000
"""Rows after which progress is logged."""

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class VerifiedStream:
    """What is known of the change stream before rows are read; ``now`` is Spanner's clock."""

    dialect: Dialect
    tables: tuple[TableSchema, ...]
    now: int


@dataclass(slots=True)
class VerifyReport:
    """The result.

    Attributes:
        destination: for people.
        timestamp: of the rows, nanoseconds since 1970.
        source_rows: rows in Spanner, by table.
        replica_rows: rows in the destination, by table.
        counts: rows that differ, by table, kind and columns.
        first: the first of them, with their keys.
    """

    destination: str
    timestamp: int
    tables: tuple[str, ...]
    source_rows: Counter[str] = field(default_factory=Counter)
    replica_rows: Counter[str] = field(default_factory=Counter)
    counts: Counter[tuple[str, RowKind, tuple[str, ...]]] = field(default_factory=Counter)
    first: list[RowDifference] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many rows differ."""
        return self.counts.total()

    def add(self, one: RowDifference) -> None:
        """Counts a row that differs."""
        self.counts[one.table, one.kind, one.columns] += 1
        if len(self.first) < MOST_SHOWN:
            self.first.append(one)

    def to_json(self, *, show_keys: bool) -> dict[str, object]:
        """For ``--json``; keys are values of rows."""
        node: dict[str, object] = {
            "destination": self.destination,
            "at": format_rfc3339(self.timestamp),
            "tables": [
                {"table": table, "rows": self.source_rows[table], "destination_rows": self.replica_rows[table]}
                for table in self.tables
            ],
            "differing_rows": self.total,
            "differences": [
                {"table": table, "kind": kind.value, "columns": list(columns), "rows": count}
                for (table, kind, columns), count in sorted(self.counts.items())
            ],
        }
        if show_keys:
            node["first_rows"] = [
                {"table": one.table, "kind": one.kind.value, "columns": list(one.columns), "key": one.key}
                for one in self.first
            ]
        return node

    def to_text(self, *, show_keys: bool) -> str:
        """What differs, and a summary as the last line."""
        lines = [
            f"{kind.value}: {table}: {count} rows{' in ' + ', '.join(columns) if columns else ''}"
            for (table, kind, columns), count in sorted(self.counts.items())
        ]
        if show_keys:
            lines += [
                f"  {one.table} {one.key}: {one.kind.value} {', '.join(one.columns)}".rstrip() for one in self.first
            ]
        if any(kind is RowKind.MISSING for _, kind, _ in self.counts):
            lines.append("note: rows that have not changed since the spool began are delivered by a backfill only")
        rows = f"{self.source_rows.total()} rows in Spanner, {self.replica_rows.total()} in the destination"
        lines.append(
            f"verified {self.destination} as of {format_rfc3339(self.timestamp)}: {len(self.tables)} tables, {rows};"
            f" {f'{self.total} rows differ' if self.total else 'no differences'}"
        )
        return "\n".join(lines)


async def verified_stream(config: Config, *, emulator_host: str | None) -> VerifiedStream:
    """The change stream's tables, those that the configuration keeps.

    Raises:
        ConfigurationError: there is no such stream.
        SpannerCdcError: Spanner cannot be reached.
    """
    async with opened(config.source, emulator_host=emulator_host, started=True) as stream:
        tables = tuple(table for table in stream.stream.tables if stream.filter.keeps(table.table))
        return VerifiedStream(stream.dialect, tables, stream.now)


def verify(config: Config, stream: VerifiedStream, *, at: str | None, emulator_host: str | None) -> VerifyReport:
    """Compares the configuration's destination with Spanner.

    Args:
        config: the configuration.
        stream: its change stream.
        at: the timestamp as it was given; None for the last one that is delivered.
        emulator_host: an emulator's address.

    Raises:
        ConfigurationError: the destination cannot be verified, or not at that timestamp.
        VersionRetentionError: the database no longer keeps the versions of that timestamp.
        SpannerCdcError: one clear line.
    """
    replica = sink_type(config.sink.type).replica(config.sink, config.spool.path, config.envelope)
    timestamp = _timestamp(at, stream, replica)
    keyless = [table.table for table in stream.tables if not table.primary_keys]
    for table in keyless:
        _log.warning("a table without a key cannot be verified", table=table)
    tables = {table.table: table for table in stream.tables if table.primary_keys}
    report = VerifyReport(replica.name, timestamp, tuple(sorted(tables)))
    _log.info("verifying", destination=replica.name, at=format_rfc3339(timestamp), tables=len(tables))
    with tempfile.TemporaryDirectory(prefix="spanner-cdc-verify-") as folder:
        count = buckets_for(replica.bytes)
        held = Buckets(Path(folder, "destination"), count)
        for number, change in enumerate(_changes(replica, tables, timestamp), 1):
            held.add(change)
            if number % LOGGED_ROWS == 0:
                _log.info("reading the destination", changes=number)
        held.flush()
        wanted = Buckets(Path(folder, "spanner"), count)
        host = config.source.emulator_host or emulator_host
        with closing(SourceRows(config.source, host, stream.dialect, timestamp)) as source:
            for watched in sorted(tables.values(), key=attrgetter("table")):
                for row in source.rows(watched):
                    report.source_rows[row.table] += 1
                    wanted.add(row)
                    if report.source_rows[row.table] % LOGGED_ROWS == 0:
                        _log.info("reading Spanner", table=row.table, rows=report.source_rows[row.table])
                _log.info("table read", table=watched.table, rows=report.source_rows[watched.table])
        wanted.flush()
        for number in range(count):
            rows = rows_after(held.rows(number))
            report.replica_rows.update(table for table, _ in rows)
            for one in differences(rows_after(wanted.rows(number)), rows):
                report.add(one)
    return report


def _timestamp(at: str | None, stream: VerifiedStream, replica: Replica) -> int:
    """The timestamp to compare at, in whole microseconds, as Spanner's tables have them."""
    if at is None:
        timestamp = replica.delivered
    else:
        try:
            timestamp = resolve_timestamp(parse_timestamp(at), stream.now)
        except ValueError as error:
            raise ConfigurationError([f"--at: {error}"]) from None
        if timestamp > replica.delivered:
            reached = format_rfc3339(replica.delivered)
            raise ConfigurationError(
                [f"--at: the sink has delivered what was committed up to {reached}: give that, or wait"]
            )
    return timestamp - timestamp % 1000


def _changes(replica: Replica, tables: Mapping[str, TableSchema], timestamp: int) -> Iterator[RowChange]:
    """The changes of the rows up to the timestamp.

    Raises:
        SpannerCdcError: a payload is not valid.
    """
    for batch in replica.changes(tables.keys()):
        times = integers(pc.list_element(batch.column("sort_keys"), 1).cast(pa.int64())).tolist()
        sequences = sequence_numbers(pc.list_element(batch.column("sort_keys"), 2)).tolist()
        indexes = pc.list_element(batch.column("sort_keys"), 3).cast(pa.int64()).to_pylist()
        kinds = pc.struct_field(batch.column("source_metadata"), "mod_type").to_pylist()
        texts = batch.column("payload").cast(pa.binary()).to_pylist()
        names = batch.column("object").to_pylist()
        for time, sequence, index, kind, text, name in zip(times, sequences, indexes, kinds, texts, names, strict=True):
            if time > timestamp:
                continue
            try:
                key = key_of(tables[name].primary_keys, parsed(text))
            except ValueError as error:
                raise SpannerCdcError(f"{replica.name}: table {name}: {error}") from None
            yield RowChange(name, key, (time, sequence, index), kind, text)
