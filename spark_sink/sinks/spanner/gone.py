"""Looks at both databases for what of the spool's changes is left out, and creates and relaxes what may be."""

from collections.abc import Collection, Mapping

from connector.config.address import DatabaseAddress
from connector.core.column_kinds import ColumnKind, SpannerType
from spark_sink.sinks.spanner.config import Applying
from spark_sink.sinks.spanner.creation import Creation, create_missing, make_nullable
from spark_sink.sinks.spanner.destination_tables import (
    DestinationDatabase,
    DestinationTable,
    awaited_destination,
)
from spark_sink.sinks.spanner.source_tables import source_tables
from spark_sink.sinks.spanner.writing.omissions import Databases, Omissions
from spark_sink.sources.changes.known_tables import KnownTables

_MADE_BY_HAND = (ColumnKind.ENUM, ColumnKind.PROTO)
"""Kinds that a database without the proto bundle has as INT64 and BYTES; a table with them cannot be created there."""


def omissions_of(
    source: DatabaseAddress | None,
    creation: Creation | None,
    target: DatabaseAddress,
    known: KnownTables,
    applying: Applying,
    there: DestinationDatabase,
) -> Omissions | None:
    """Decides what is left out of a spool's changes; None if the source is not known.

    Args:
        source: the database that the changes are of.
        creation: what may be created in the destination.
        target: the destination.
        known: the spool's tables.
        applying: the options.
        there: the destination's tables as they are.
    """
    if source is None:
        return None

    def look() -> Databases:
        now = there
        if creation is not None:
            create_missing(
                creation.wanted(known),
                creation.source,
                target,
                creation.creates,
                with_metadata=creation.with_metadata,
            )
            now = awaited_destination(target)
        return Databases(now.tables, source_tables(source))

    def former(table: str, column: str) -> bool:
        type_json = known.columns(table, exact=True).get(column, "")
        if not type_json or creation is None or table not in creation.wanted(known):
            return not type_json
        return SpannerType.parse(type_json).kind not in _MADE_BY_HAND

    def relax(columns: Mapping[str, Collection[str]]) -> Mapping[str, DestinationTable]:
        may = creation.wanted(known) if creation is not None else {}
        make_nullable({table: names for table, names in columns.items() if table in may}, target)
        return awaited_destination(target).tables

    return Omissions(applying, there.tables, known.schema, former, look, relax if creation is not None else None)
