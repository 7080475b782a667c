"""The names of the source's tables and columns in the destination, as it spells them."""

from collections.abc import Mapping
from functools import cache

from spark_sink.sinks.spanner.config import Applying
from spark_sink.sinks.spanner.destination_tables import DestinationTable


class DestinationNames:
    """Finds names in the destination.

    Spanner has no two names that only capitals distinguish. So a table or a column that was dropped and created again
    in another spelling is the one that is there.

    Args:
        applying: the options.
        tables: the destination's.

    Attributes:
        tables: the destination's.
        table: a table's name, by its name in the source.
        column: a column's name, by the names of its table and of itself in the source.
    """

    def __init__(self, applying: Applying, tables: Mapping[str, DestinationTable]) -> None:
        self.tables = tables
        self._applying = applying
        self._spelled = {name.lower(): name for name in tables}
        self.table = cache(self._table)
        self.column = cache(self._column)

    def _table(self, source: str) -> str:
        name = self._applying.table(source)
        return name if name in self.tables else self._spelled.get(name.lower(), name)

    def _column(self, table: str, column: str) -> str:
        name = self._applying.column(table, column)
        known = self.tables.get(self.table(table))
        return name if known is None else known.spelled(name)
