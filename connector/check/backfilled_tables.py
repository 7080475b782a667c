"""The tables and the rows that a new backfill has, by the configuration and ``--table``."""

from collections.abc import Iterable

from connector.core.filters import RecordFilter
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError
from connector.reader.change_stream import OpenStream
from connector.spool.backfill.documents import Backfill


def tables_of(stream: OpenStream, patterns: tuple[str, ...] = ()) -> list[TableSchema]:
    """The watched tables that the configuration keeps and the patterns name.

    Without patterns those that ``source.backfill.exclude`` does not leave out.

    Raises:
        ConfigurationError: a pattern names none, or there are none at all.
    """
    kept = stream.kept_tables
    chosen = RecordFilter(patterns)
    errors = [
        f"--table: {pattern!r} matches no table that change stream {stream.stream.name} watches and source.tables keeps"
        for pattern in chosen.unmatched(table.table for table in kept)
    ]
    tables = [table for table in kept if chosen.keeps(table.table)]
    if not tables and not errors:
        errors = [f"source.change_stream: {stream.stream.name} watches no table that source.tables keeps"]
    rules = stream.config.backfill
    if rules is not None and not patterns:
        tables = [table for table in tables if not rules.excludes(table.table)]
        if not tables and not errors:
            errors = ["source.backfill.exclude: it leaves out every table: set source.backfill: false, or name tables"]
    if errors:
        raise ConfigurationError(errors)
    return tables


def conditions_of(stream: OpenStream) -> dict[str, str]:
    """The conditions of ``source.backfill.where``, of tables that are watched.

    With ``new_tables`` and ``source.placements`` others may be for tables to come: one without a condition is refused.

    Raises:
        ConfigurationError: one is of a table that is not watched: all rows of the one that was meant would be read.
    """
    rules = stream.config.backfill
    if rules is None:
        return {}
    kept = {table.table for table in stream.kept_tables}
    if rules.new_tables and stream.config.placements is not None:
        return {table: where for table, where in rules.where.items() if table in kept}
    if errors := [
        f"source.backfill.where.{table}: change stream {stream.stream.name} watches no such table that source.tables"
        " keeps"
        for table in rules.where
        if table not in kept
    ]:
        raise ConfigurationError(errors)
    return dict(rules.where)


def conditions_of_continued(
    stream: OpenStream, document: Backfill, left: Iterable[str]
) -> tuple[dict[str, str], list[str]]:
    """The conditions with which an unfinished backfill continues, and the tables whose conditions are new.

    Args:
        stream: the change stream.
        document: the backfill; a repair has no conditions, and neither has ``source.backfill: false`` new ones.
        left: its tables that are not done.

    Raises:
        ConfigurationError: as of :func:`conditions_of`.
    """
    if stream.config.backfill is None:
        return document.conditions, []
    configured, recorded = conditions_of(stream), document.conditions
    if document.is_repair:
        return configured, []
    return configured, sorted(table for table in left if configured.get(table) != recorded.get(table))
