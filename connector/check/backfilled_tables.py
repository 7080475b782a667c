"""The tables and the rows that a new backfill has, by the configuration and ``--table``."""

from connector.core.filters import RecordFilter
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError
from connector.log import Log
from connector.reader.change_stream import OpenStream
from connector.spool.backfill.documents import Backfill

_log = Log(__name__)


def tables_of(stream: OpenStream, patterns: tuple[str, ...] = ()) -> list[TableSchema]:
    """The watched tables that the configuration keeps and the patterns name.

    Without patterns those that ``source.backfill.exclude`` does not leave out.

    Raises:
        ConfigurationError: a pattern names none, or there are none at all.
    """
    kept = [table for table in stream.stream.tables if stream.filter.keeps(table.table)]
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
    """The conditions of ``source.backfill.where``.

    Raises:
        ConfigurationError: one is of a table that is not watched: all rows of the one that was meant would be read.
    """
    rules = stream.config.backfill
    if rules is None:
        return {}
    kept = {table.table for table in stream.stream.tables if stream.filter.keeps(table.table)}
    if errors := [
        f"source.backfill.where.{table}: change stream {stream.stream.name} watches no such table that source.tables"
        " keeps"
        for table in rules.where
        if table not in kept
    ]:
        raise ConfigurationError(errors)
    return dict(rules.where)


def conditions_of_continued(stream: OpenStream, document: Backfill) -> dict[str, str]:
    """The conditions of a backfill that continues another one: what that one was recorded with, and warns of changes.

    A repair has none: its tables are read as a new backfill reads them.
    """
    if document.is_repair:
        return conditions_of(stream)
    rules = stream.config.backfill
    recorded, configured = document.conditions, {} if rules is None else rules.where
    changed = [table.table for table in document.tables if recorded.get(table.table) != configured.get(table.table)]
    if changed:
        _log.warning(
            "source.backfill.where has changed: the backfill continues with the conditions that it began with",
            number=document.number,
            tables=", ".join(changed),
        )
    return recorded
