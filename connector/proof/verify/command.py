"""``spanner-cdc verify``: compares what a sink has delivered, or another database, with Spanner at a timestamp.

Where the destination can count and add up its rows by bucket (:class:`connector.config.replicas.Digest`), only the rows
of buckets that differ are compared. Both sides are divided into buckets on disk, by a hash of the rows' keys, and
compared a bucket at a time.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from connector.config import SourceConfig, resolve_timestamp
from connector.config.backfill_rules import check_bounded
from connector.config.destination import check_kept
from connector.config.loading import Config
from connector.config.replicas import Replica
from connector.config.sinks import sink_type
from connector.config.values import parse_timestamp
from connector.core.dialects import Dialect
from connector.core.filters import RecordFilter
from connector.core.schemas import TableSchema
from connector.core.timestamps import format_rfc3339
from connector.envelope.envelope import WHOLE_ROWS
from connector.errors import ConfigurationError
from connector.log import Log
from connector.proof.verify.comparison import Comparison
from connector.proof.verify.database import DatabaseReplica, DeliveredDatabase, database_at
from connector.proof.verify.differing_keys import DifferingKeys
from connector.proof.verify.filters import filters_of
from connector.proof.verify.report import VerifyReport
from connector.reader.change_stream import opened
from connector.spanner.snapshot.database import DatabaseNow
from connector.spool.backfill.records import backfills
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class VerifiedStream:
    """A change stream as it is before rows are read; ``now`` is Spanner's clock."""

    dialect: Dialect
    tables: tuple[TableSchema, ...]
    now: int
    captures_whole_rows: bool


async def verified_stream(config: Config) -> VerifiedStream:
    """The change stream's tables, those that the configuration keeps.

    Raises:
        ConfigurationError: there is no such stream.
        SpannerCdcError: Spanner cannot be reached.
    """
    async with opened(config.source, started=True) as stream:
        whole = stream.stream.value_capture_type in WHOLE_ROWS
        return VerifiedStream(stream.dialect, stream.kept_tables, stream.now, whole)


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The options of a comparison.

    Attributes:
        at: the timestamp as it was given; None for the last one that is delivered, or now with another database.
        against: the resource name of another database, instead of the destination.
        tables: patterns of the tables to compare; empty for all.
    """

    at: str | None = None
    against: str | None = None
    tables: tuple[str, ...] = ()


def verify(
    config: Config, stream: VerifiedStream, options: VerifyOptions, keys: DifferingKeys | None = None
) -> VerifyReport:
    """Compares the configuration's destination, or another database, with Spanner.

    Args:
        config: the configuration.
        stream: its change stream.
        options: what is compared.
        keys: gets the keys of the rows that differ, for a repair.

    Raises:
        ConfigurationError: the destination cannot be verified or repaired, or not at that timestamp, or there is no
            table, or one is without a condition and the stream is of some placements.
        SpoolMismatchError: the spool holds another change stream, or is written with other rules for columns.
        VersionRetentionError: the database no longer keeps the versions of that timestamp.
        SpannerCdcError: one clear line.
    """
    own = sink_type(config.sink.type).own_tables
    chosen = [table for table in _chosen(stream, options.tables) if table.table not in own]
    keyless = tuple(table.table for table in chosen if not table.primary_keys)
    for table in keyless:
        _log.warning("a table without a key cannot be verified", table=table)
    tables = [table for table in chosen if table.primary_keys]
    if not tables:
        raise ConfigurationError(
            ["source.tables: there is no table to compare: name tables that the change stream watches, with a key"]
        )
    bounds = _bounds(config.source, tables)
    filled, filters = frozenset[int](), dict[str, tuple[str, ...]]()
    if options.against is None:
        spool = Spool.at(absolute(config.spool.path))
        with suppress(FileNotFoundError):
            spool.check_source(config.source.name, config.source.rules_fingerprint)
        check_kept(config)
        known = backfills(spool)
        filled = frozenset(one.document.timestamp for one in known)
        filters = filters_of(known, (table.table for table in tables), config.source.backfill)
        replica = _destination(config, tables)
        timestamp = _timestamp(options.at, stream, replica)
    else:
        replica = _database(options.against, config.source, options.at, tables)
        timestamp = replica.delivered
    with closing(replica):
        if keys is not None:
            replica.check_repair({table.table: table for table in tables})
        _log.info("verifying", destination=replica.name, at=format_rfc3339(timestamp), tables=len(tables))
        with Comparison(
            replica,
            tables,
            timestamp,
            keys=keys,
            filled=filled,
            filters=filters,
            bounds=bounds,
            captures_whole_rows=stream.captures_whole_rows,
        ) as comparison:
            comparison.report.keyless = keyless
            comparison.read_source(config.source, stream.dialect)
            comparison.read_destination()
            now = stream.now
            if not replica.keeps_history:  # of rows that have changed meanwhile
                now = asyncio.run(DatabaseNow.of(config.source.address)).timestamp
            return comparison.compare(config.source, now)


def _chosen(stream: VerifiedStream, patterns: Sequence[str]) -> list[TableSchema]:
    """The tables that patterns name."""
    chosen = RecordFilter(patterns)
    if unmatched := chosen.unmatched(table.table for table in stream.tables):
        raise ConfigurationError(
            [
                f"--tables: {pattern!r} matches no table that the change stream watches and source.tables keeps"
                for pattern in unmatched
            ]
        )
    return [table for table in stream.tables if chosen.keeps(table.table)]


def _bounds(source: SourceConfig, tables: Iterable[TableSchema]) -> Mapping[str, str]:
    """The conditions of the rows to read, where the stream is of some placements; else there are none.

    Raises:
        ConfigurationError: a table has no condition.
    """
    if source.placements is None:
        return {}
    conditions = source.backfill.where if source.backfill is not None else {}
    check_bounded(source.placements, (table.table for table in tables), conditions)
    return conditions


def _destination(config: Config, tables: Sequence[TableSchema]) -> Replica:
    kind = sink_type(config.sink.type)
    found = kind.replica(config.sink, config.source, config.spool.path, config.envelope, config.spark)
    if isinstance(found, Replica):
        return found
    replica = asyncio.run(DeliveredDatabase.of_copy(config.source, found))
    replica.check(tables)
    return replica


def _database(against: str, source: SourceConfig, at: str | None, tables: Sequence[TableSchema]) -> DatabaseReplica:
    try:
        wanted = "now" if at is None else parse_timestamp(at)
    except ValueError as error:
        raise ConfigurationError([f"--at: {error}"]) from None
    replica = asyncio.run(DatabaseReplica.of(database_at(against, source), at=wanted))
    replica.check(tables)
    return replica


def _timestamp(at: str | None, stream: VerifiedStream, replica: Replica) -> int:
    """The timestamp to compare at, in whole microseconds, as Spanner's tables have them."""
    if at is None:
        return replica.latest(replica.delivered)
    try:
        timestamp = resolve_timestamp(parse_timestamp(at), stream.now)
    except ValueError as error:
        raise ConfigurationError([f"--at: {error}"]) from None
    if timestamp > replica.delivered:
        reached = format_rfc3339(replica.delivered)
        raise ConfigurationError(
            [f"--at: the sink has delivered what was committed up to {reached}: give that, or wait"]
        )
    return replica.latest(timestamp)
