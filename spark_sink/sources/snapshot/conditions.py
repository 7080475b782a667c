"""Filters of Spark as conditions in Spanner's SQL, where Spanner selects the same rows as Spark. Pure.

What is left to Spark: floating-point numbers (in Spark NaN equals itself and is the largest), bytes, columns that are
text in Spark but not in Spanner, comparisons of strings in the PostgreSQL dialect, arrays, and what would make the
statement larger than Spanner takes. A timestamp in Spark has microseconds, so that the nanoseconds between two of them
belong to the first.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.dialects import Dialect
from connector.core.records import ColumnType


def comparable(columns: Iterable[ColumnType]) -> dict[str, SpannerType]:
    """The types of the columns of which Spanner may evaluate conditions: PostgreSQL's ``oid`` is no integer there."""
    return {column.name: SpannerType.parse(column.type) for column in columns if '"PG_OID"' not in column.type}


_Literal = Callable[[object], str | None]
_MICROSECOND = timedelta(microseconds=1)
_COMPARISONS: Mapping[type[Filter], str] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}

MOST_VALUES = 200
"""Values in all conditions of a statement: each takes up to four of the 1,000 function calls that Spanner allows."""

MOST_CHARACTERS = 100_000
"""Characters of all conditions of a statement, which may have 1,000,000."""


class Conditions:
    """Writes the conditions of a table's columns.

    Args:
        dialect: the database's.
        columns: the type of each column by its name, as of :func:`comparable`.
    """

    def __init__(self, dialect: Dialect, columns: Mapping[str, SpannerType]) -> None:
        self._dialect = dialect
        self._columns = columns
        self._literals = _LITERALS[dialect.name]

    def pushed(self, filters: Iterable[Filter]) -> tuple[str, list[Filter]]:
        """The condition of the filters that Spanner evaluates, empty if there are none; and the others, for Spark."""
        written: list[str] = []
        left: list[Filter] = []
        values = characters = 0
        for one in filters:
            fits = values + _values_in(one) <= MOST_VALUES
            sql = self.sql(one) if fits else None
            if sql is None or characters + len(sql) > MOST_CHARACTERS:
                left.append(one)
                continue
            written.append(sql)
            values, characters = values + _values_in(one), characters + len(sql)
        return " AND ".join(written), left

    def sql(self, of: Filter) -> str | None:
        """The condition that is true for the same rows as the filter, or None if Spark must evaluate it."""
        match of:
            case Not(child):
                inner = self.sql(child)
                return None if inner is None else f"NOT ({inner})"
            case IsNull((name,)) if name in self._columns:
                return f"{self._dialect.identifier(name)} IS NULL"
            case IsNotNull((name,)) if name in self._columns:
                return f"{self._dialect.identifier(name)} IS NOT NULL"
            case In((name,), values):
                parts = [self._compared("=", name, value) for value in values]
                written = [part for part in parts if part is not None]
                return f"({' OR '.join(written)})" if written and len(written) == len(parts) else None
            case EqualNullSafe((name,), value):
                equal = self._compared("=", name, value)
                return None if equal is None else f"({self._dialect.identifier(name)} IS NOT NULL AND {equal})"
        operator = _COMPARISONS.get(type(of))
        path: tuple[str, ...] = getattr(of, "attribute", ())
        operand: object = getattr(of, "value", None)
        return None if operator is None or len(path) != 1 else self._compared(operator, path[0], operand)

    def _compared(self, operator: str, name: str, value: object) -> str | None:
        found = self._columns.get(name)
        if found is None or found.is_array or value is None:
            return None
        column = self._dialect.identifier(name)
        if found.kind is ColumnKind.TIMESTAMP:
            return self._compared_timestamp(operator, column, value)
        if operator != "=" and found.kind in _EQUAL_ONLY.get(self._dialect.name, ()):
            return None
        literal = self._literals.get(found.kind)
        written = literal(value) if literal else None
        return None if written is None else f"{column} {operator} {written}"

    def _compared_timestamp(self, operator: str, column: str, value: object) -> str | None:
        """A comparison with a microsecond, as one with the nanoseconds that it stands for."""
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        try:
            start, stop = (self._timestamp(one) for one in (value, value.astimezone(UTC) + _MICROSECOND))
        except OverflowError:
            return None
        match operator:
            case "=":
                return f"({column} >= {start} AND {column} < {stop})"
            case "<" | ">=":
                return f"{column} {operator} {start}"
            case "<=":
                return f"{column} < {stop}"
        return f"{column} >= {stop}"

    def _timestamp(self, value: datetime) -> str:
        text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"TIMESTAMP '{text}Z'" if self._dialect.name == "googlesql" else f"'{text}Z'::timestamptz"


def _values_in(of: Filter) -> int:
    """The values that a filter compares a column with; 1 for a filter without any."""
    match of:
        case Not(child):
            return _values_in(child)
        case In(_, values):
            return len(values)
    return 1


def _boolean(value: object) -> str | None:
    return str(value).upper() if isinstance(value, bool) else None


def _filled(template: str, kind: type, other: type) -> _Literal:
    """Fills values of a class into a template, and none of another class, which is a subclass of the first."""

    def literal(value: object) -> str | None:
        return template.format(value) if isinstance(value, kind) and not isinstance(value, other) else None

    return literal


def _numeric(value: object) -> str | None:
    fits = isinstance(value, Decimal | int) and not isinstance(value, bool)
    return f"NUMERIC '{Decimal(str(value)):f}'" if fits else None


def _googlesql_string(value: object) -> str | None:
    if not isinstance(value, str) or not all(map(_is_printable, value)):
        return None
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _postgresql_string(value: object) -> str | None:
    if not isinstance(value, str) or "\\" in value or not all(map(_is_printable, value)):
        return None
    escaped = value.replace("'", "''")
    return f"'{escaped}'"


def _is_printable(character: str) -> bool:
    return character == " " or character.isprintable()


_LITERALS: Mapping[str, Mapping[ColumnKind, _Literal]] = {
    "googlesql": {
        ColumnKind.BOOL: _boolean,
        ColumnKind.INT64: _filled("CAST('{}' AS INT64)", int, bool),
        ColumnKind.NUMERIC: _numeric,
        ColumnKind.STRING: _googlesql_string,
        ColumnKind.DATE: _filled("DATE '{}'", date, datetime),
    },
    "postgresql": {
        ColumnKind.BOOL: _boolean,
        ColumnKind.INT64: _filled("CAST('{}' AS bigint)", int, bool),
        ColumnKind.STRING: _postgresql_string,
        ColumnKind.DATE: _filled("'{}'::date", date, datetime),
    },
}
"""The literal that each dialect writes for a value of a kind; a kind without a line is left to Spark."""

_EQUAL_ONLY = {"postgresql": (ColumnKind.STRING,)}
"""Kinds whose order may differ from Spark's."""
