"""Conditions that the keys of a load meet, as constants of SQL, so that BigQuery prunes blocks and partitions. Pure.

A MERGE compares each staged row with the target's rows of the same key. A row's key never changes, so a condition which
all keys of the load meet excludes no row that matters. BigQuery prunes by conditions whose values are constants: on the
first column that a table is clustered by, and on the one that it is partitioned by. Only key columns are used; others
may have had another value before.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any

import orjson

from connector.core.timestamps import format_rfc3339, parse
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, TableColumn

_MOST_VALUES = 500
"""Values that are listed; more become a range."""

_MOST_TEXT = 16_000
"""Characters of a list."""

_LONGEST = 200
"""Characters of a text that is listed."""

_IN_ORDER = frozenset({"INT64", "DATE", "TIMESTAMP", "NUMERIC"})
"""The types for which a range is a bound; a collation of the dataset may order texts differently."""


def bounded(table: BigQueryTable) -> list[str]:
    """The key columns, by their names in the source, by which BigQuery can prune the table."""
    wanted = {*table.clustering[:1], table.partition.column if table.partition else ""}
    return [column.name for column in table.columns if column.is_key and column.field.name in wanted]


def bound_of(column: TableColumn, values: AbstractSet[bytes], target: str = "t") -> str:
    """A condition on a column of the target that all loaded values meet; empty if there is none.

    ``target`` is the alias of the target. With a NULL among the values there is none, because NULL equals nothing.
    """
    read, literal = _OF_TYPE.get(column.field.type, (None, None))
    if read is None or literal is None or not values or b"null" in values:
        return ""
    name = f"{target}.`{column.field.name}`"
    keys = sorted(read(value) for value in values)
    if len(keys) <= _MOST_VALUES:
        listed = [literal(key) for key in keys]
        text = ", ".join(listed)
        if all(listed) and len(text) <= _MOST_TEXT:
            return f"{name} IN ({text})"
    if column.field.type not in _IN_ORDER:
        return ""
    ends = [literal(keys[0]), literal(keys[-1])]
    return f"{name} BETWEEN {ends[0]} AND {ends[1]}" if all(ends) else ""


Read = Callable[[bytes], Any]
Literal = Callable[[Any], str]


def _text(text: str) -> str:
    """A text in quotes; empty if it is long, or has a character with a special meaning in GoogleSQL."""
    is_plain = len(text) <= _LONGEST and text.isprintable() and not {"'", '"', "\\", "`"} & set(text)
    return f"'{text}'" if is_plain else ""


def _whole(value: bytes) -> int:
    return int(value.strip(b'"'))


_OF_TYPE: Mapping[str, tuple[Read, Literal]] = {
    "INT64": (_whole, str),
    "STRING": (orjson.loads, _text),
    "DATE": (orjson.loads, lambda value: f"DATE '{value}'"),
    "TIMESTAMP": (
        lambda value: parse(orjson.loads(value)),
        lambda value: f"TIMESTAMP '{format_rfc3339(value)}'",
    ),
    "NUMERIC": (lambda value: Decimal(orjson.loads(value)), lambda value: f"NUMERIC '{value:f}'"),
}
