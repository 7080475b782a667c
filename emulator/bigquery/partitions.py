"""How a table of the BigQuery double may be partitioned; it holds its rows all the same."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.bigquery.refusals import invalid
from emulator.bigquery.schema import Column, Json

_MOST_RANGES = 10_000


def check_partitions(resource: Json, schema: Sequence[Column]) -> None:
    """Refuses a partitioning that BigQuery does not take."""
    time, span = resource.get("timePartitioning"), resource.get("rangePartitioning")
    if time and span:
        raise invalid("Cannot set both time and range partitioning.")
    if time and time.get("field"):
        _check_column(time["field"], schema, "DATE", "DATETIME", "TIMESTAMP")
    if span:
        _check_column(span["field"], schema, "INTEGER", "INT64")
        start, end, interval = (int(span["range"][name]) for name in ("start", "end", "interval"))
        if interval < 1 or not 0 < (end - start) / interval <= _MOST_RANGES:
            raise invalid(f"The range of a partition specification has 1 to {_MOST_RANGES} partitions.")


def _check_column(name: str, schema: Sequence[Column], *kinds: str) -> None:
    found = [column for column in schema if column.name.lower() == name.lower()]
    if not found or found[0].type not in kinds or found[0].mode == "REPEATED":
        raise invalid(
            f"The field specified for partitioning cannot be found in the schema, or is none of {kinds}: {name}"
        )
