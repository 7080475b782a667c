"""The tables of a sink that lack what was committed before the sink started."""

from connector.spool.backfill.records import backfills
from connector.spool.consumers import find
from connector.spool.reading import Spool
from connector.spool.sink_start import start_of_sink


def incomplete_tables(spool: Spool, name: str) -> dict[str, int]:
    """The tables that are incomplete at a sink's destination, each with the timestamp up to which it is.

    A table is complete once a backfill has delivered all of it to the sink, as of that timestamp or later. A condition
    of ``source.backfill.where`` omits rows, and a repair has only rows that differed. Of a sink that an older program
    has started nothing is known.

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
    filled = {
        table
        for one in backfills(spool)
        if one.document.timestamp >= start.after and find(one.spool, name) is not None
        for table in one.whole_tables
    }
    return {table: start.after for table in start.tables if table not in filled}
