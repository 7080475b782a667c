"""The tables that ``verify --repair`` has left equal to Spanner's: the record of it beside a sink's others.

A repair has only the rows that differed, so that its own documents do not say that a table is complete. A comparison of
all its rows does, whether or not it has found any that differ.
"""

from collections.abc import Collection, Mapping

from pydantic import Field

from connector.spool.consumers import EQUAL
from connector.spool.manifest import Document, Timestamp
from connector.spool.reading import Spool, to_json


class EqualTables(Document):
    """``consumers/<sink>.equal``: the newest timestamp as of which each table was compared, and left equal.

    Rows that differed are repaired as of a later timestamp, that of the repair. Whatever is not in the stream between
    the two makes the others differ again.
    """

    tables: dict[str, Timestamp] = Field(default_factory=dict)


def equal_tables(spool: Spool, name: str) -> Mapping[str, int]:
    """The timestamp as of which each table of a sink was compared, and left equal to Spanner's; Unix nanoseconds.

    Args:
        spool: the change stream's.
        name: the sink's.

    Raises:
        SpoolError: the record is corrupt, of a newer version, or cannot be read.
    """
    found = spool.find(_path(name), EqualTables, "it is not a valid record of equal tables")
    return found.tables if found else {}


def keep_equal(spool: Spool, name: str, tables: Collection[str], timestamp: int) -> None:
    """Records that tables of a sink are equal to Spanner's; :func:`connector.spool.consumers.forget` removes it.

    Args:
        spool: the change stream's.
        name: the sink's.
        tables: by their names in the source.
        timestamp: as of which they were compared, Unix nanoseconds.

    Raises:
        SpoolError: the record cannot be read or written.
    """
    if tables:
        known = {**equal_tables(spool, name), **dict.fromkeys(sorted(tables), timestamp)}
        spool.storage.replace(_path(name), to_json(EqualTables(tables=known)))


def _path(name: str) -> str:
    return f"consumers/{name}{EQUAL}"
