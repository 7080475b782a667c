"""The names of the source's tables and columns in the destination, as it spells them."""

from collections.abc import Mapping

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
    """

    def __init__(self, applying: Applying, tables: Mapping[str, DestinationTable]) -> None:
        self.tables = tables
        self._applying = applying
        self._spelled = {name.lower(): name for name in tables}
        self._tables: dict[str, str] = {}
        self._columns: dict[tuple[str, str], str] = {}

    def table(self, source: str) -> str:
        """A table's name."""
        found = self._tables.get(source)
        if found is None:
            name = self._applying.table(source)
            found = self._tables[source] = name if name in self.tables else self._spelled.get(name.lower(), name)
        return found

    def column(self, table: str, column: str) -> str:
        """A column's name, of a table of the source."""
        found = self._columns.get((table, column))
        if found is None:
            found = self._columns[table, column] = self._column(table, column)
        return found

    def _column(self, table: str, column: str) -> str:
        name = self._applying.column(table, column)
        known = self.tables.get(self.table(table))
        return name if known is None else known.spelled(name)
