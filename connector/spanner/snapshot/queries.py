"""The statement that reads the rows of one table. Pure."""

from dataclasses import dataclass

from connector.core.dialects import Dialect


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The rows of one table.

    Attributes:
        table: its name, ``schema.table`` in a named schema.
        columns: the names of the wanted columns, in order; without any, all columns, generated ones included.
        condition: SQL without parameters that rows must satisfy, with quoted names; empty for all rows.
    """

    table: str
    columns: tuple[str, ...] = ()
    condition: str = ""

    def sql(self, dialect: Dialect) -> str:
        """The statement. A condition must not make Spanner use an index: a join with it cannot be partitioned."""
        columns = ", ".join(map(dialect.identifier, self.columns)) or "*"
        where = f"{dialect.base_table} WHERE {self.condition}" if self.condition else ""
        return f"SELECT {columns} FROM {dialect.table(self.table)}{where}"


def any_of(*conditions: str) -> str:
    """The condition of the rows that satisfy one of some conditions, which are SQL of users; empty ones are omitted."""
    return " OR ".join(f"({condition})" for condition in conditions if condition)


def all_of(*conditions: str) -> str:
    """The condition of the rows that satisfy each of some conditions, as of :func:`any_of`."""
    return " AND ".join(f"({condition})" for condition in conditions if condition)


def none_of(*conditions: str) -> str:
    """The condition of the rows that satisfy none of some conditions: they are false, or NULL."""
    return f"NOT COALESCE({any_of(*conditions)}, FALSE)"
