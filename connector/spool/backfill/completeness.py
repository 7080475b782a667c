"""The tables of a sink that are complete, and those that lack what was committed before the sink started."""

from collections.abc import Iterable

from connector.core.timestamps import format_rfc3339
from connector.spool.backfill.equal_tables import equal_tables
from connector.spool.backfill.records import RecordedBackfill, backfills
from connector.spool.consumers import find
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.sink_start import SinkStart, start_of_sink


def complete_as_of(spool: Spool, name: str, known: Iterable[RecordedBackfill]) -> dict[str, int]:
    """The newest timestamp as of which a sink has got all rows of a table, for each table that has one.

    Either a backfill has delivered all of it to this very sink, or ``verify --repair`` has left it equal to Spanner's.
    A condition of ``source.backfill.where`` omits rows, and a repair alone has only rows that differed. The rows that a
    backfill cannot see, because they were deleted within a gap, stay.

    Args:
        spool: the change stream's.
        name: the sink's.
        known: the spool's backfills.

    Returns:
        Nanoseconds since 1970 by table.

    Raises:
        SpoolError: a document is corrupt or cannot be read.
    """
    found = dict(equal_tables(spool, name))
    for one in known:
        if (tables := one.whole_tables) and find(one.spool, name) is not None:
            found |= {table: max(one.document.timestamp, found.get(table, 0)) for table in tables}
    return found


def with_later_rows(known: Iterable[RecordedBackfill], timestamp: int) -> dict[str, str]:
    """The tables with rows of a backfill that are as of a later commit timestamp than a cut, and the reasons. Pure.

    Args:
        known: the spool's backfills.
        timestamp: of the cut, Unix nanoseconds.
    """
    return {
        table.table: f"its backfill's rows are as of {format_rfc3339(one.document.timestamp)}"
        for one in known
        if one.document.timestamp > timestamp
        for table in one.document.tables
    }


def tables_to_fill(start: SinkStart, known: Iterable[RecordedBackfill], *, is_backfilled: bool) -> frozenset[str]:
    """The tables that a sink should have from before its start, too. Pure.

    They are all, if it starts later than its spool. If it starts with the spool, they are those of which a backfill has
    delivered every row, to this sink or to another one only.

    Args:
        start: of the sink.
        known: the spool's backfills.
        is_backfilled: whether its configuration has ``source.backfill``.
    """
    tables = frozenset(start.tables)
    if start.epoch > 0:
        return tables
    filled = (table for one in known for table in one.whole_tables)
    return tables.intersection(filled) if is_backfilled else frozenset()


def tables_without_backfill(
    tables: Iterable[str], header: SpoolHeader, known: Iterable[RecordedBackfill]
) -> frozenset[str]:
    """Those of some tables that the stream did not watch at the spool's start, and that no backfill has. Pure."""
    had = {table.table for one in known if not one.document.is_repair for table in one.document.tables}
    return frozenset(tables).difference(header.schema_keys, had)


def incomplete_tables(spool: Spool, name: str) -> dict[str, int]:
    """The tables that are incomplete at a sink's destination, each with the timestamp up to which it is.

    A table is complete by :func:`complete_as_of` at that timestamp or later. Of a sink that an older program has
    started nothing is known.

    Args:
        spool: the change stream's.
        name: the sink's.

    Returns:
        Nanoseconds since 1970 by table.

    Raises:
        SpoolError: a document is corrupt or cannot be read.
    """
    start = start_of_sink(spool, name)
    if start is None:
        return {}
    complete = complete_as_of(spool, name, backfills(spool))
    return {table: start.after for table in start.tables if complete.get(table, -1) < start.after}
