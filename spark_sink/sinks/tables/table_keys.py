"""The keys by which rows are merged: a table of the destination has one, permanently.

A table that is dropped in Spanner and created again may have another key. By that key rows of the former one would
become one row without a word.
"""

import json
import logging
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector import log
from spark_sink.errors import TableError
from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sources.changes.typed import payload_texts

PROPERTY = "spanner-cdc.primary-key"
"""The property of a table that has its key, as JSON."""

_NANOSECONDS = r"\.\d{6}\d*[1-9]"
"""In the text of a timestamp: more digits than a microsecond has."""


def as_property(key: Sequence[str]) -> str:
    """A key as the property of a table has it."""
    return json.dumps(list(key), ensure_ascii=False)


def of_property(kept: str) -> list[str]:
    """A key, of its text in the property of a table."""
    found: list[str] = json.loads(kept)
    return found


def check_key(table: LakeTable, target: str, kept: str) -> None:
    """Compares the key of a table with the one that it was created with.

    Raises:
        TableError: they differ.
    """
    found = of_property(kept)
    if sorted(found) != sorted(table.primary_key):
        raise TableError(
            f"the key of table {table.source} is {_named(table.primary_key)}, but in {target} rows are merged by"
            f" {_named(found)}",
            hint=_hint(table),
        )


def of_newest_key(
    events: DataFrame, table: LakeTable, target: str, keys: Sequence[Sequence[str]], *, is_certain: bool
) -> DataFrame:
    """The events of a micro-batch that have the table's key.

    The others are of a table that was dropped before this one was created: none of their rows is in Spanner any more.

    Args:
        events: the events of all tables.
        table: the table.
        target: the table, as a statement names it.
        keys: the keys that its events have.
        is_certain: whether rows are known to be merged by the newest key, and all events to be no newer than it.

    Raises:
        TableError: there are other keys, and it is not certain.
    """
    others = sorted({tuple(key) for key in keys if sorted(key) != sorted(table.primary_key)})
    if not others:
        return events
    found = " and ".join(map(_named, others))
    if not is_certain:
        raise TableError(
            f"the key of table {table.source} is {_named(table.primary_key)}, but a micro-batch has rows with the key"
            f" {found}, which would be merged into {target}",
            hint=_hint(table),
        )
    log.say(
        "spark_sink",
        f"events of table {table.source} with the key {found} are left out: that table was dropped, and the"
        f" key is {_named(table.primary_key)} now",
        action="former_key_left_out",
        level=logging.WARNING,
        table=table.source,
    )
    return of_key(events, table)


def of_key(events: DataFrame, table: LakeTable) -> DataFrame:
    """The events of a table that have its key, as far as they name one."""
    wanted = F.array(*(F.lit(name) for name in sorted(table.primary_key))).cast("array<string>")
    found = F.sort_array(F.col("source_metadata").getField("primary_keys"))
    return events.where(F.coalesce(found == wanted, F.lit(True)))


def check_nanoseconds(events: DataFrame, table: LakeTable) -> None:
    """Checks that no two keys become one: a timestamp in a table has microseconds.

    Raises:
        TableError: a key has nanoseconds.
    """
    for name in table.primary_key:
        if table.columns[name] != "timestamp":
            continue
        text = payload_texts({name: table.types[name]}).getField(name)
        found = events.where((F.col("object") == F.lit(table.source)) & text.rlike(_NANOSECONDS))
        if found.limit(1).count():
            raise TableError(
                f"table {table.source} has keys with nanoseconds in column {name}, which are cut to microseconds here",
                hint="Two rows could become one: leave the table out (source.tables), or use mode append.",
            )


def _named(key: Sequence[str]) -> str:
    return f"({', '.join(key)})"


def _hint(table: LakeTable) -> str:
    return (
        "It was dropped in Spanner, and created again with another key. Rename or drop the table there: it is created"
        f" again, and `spanner-cdc backfill --table {table.source}` brings rows that are in Spanner already."
    )
