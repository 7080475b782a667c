"""The partitioning of BigQuery's tables, by the option ``sink.partition_by``. Pure.

``Placed`` is a column of DATE or TIMESTAMP, by the day; ``Placed,month`` by another unit; ``Id,0,1000000,1000`` a
column of INT64, in ranges of 1,000 from 0 to below 1,000,000; ``_PARTITIONTIME`` the time at which a row arrives.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

ARRIVAL = "_PARTITIONTIME"
ALL_OTHERS = "*"
"""Stands for the tables that are not named."""

_LENGTHS = {"hour": len('"2026-03-01T10'), "day": len('"2026-03-01'), "month": len('"2026-03'), "year": len('"2026')}
"""The characters of a DATE or TIMESTAMP in JSON that distinguish partitions, by unit."""

_MOST_RANGES = 10_000
_SPEC = re.compile(r"([^,]+)(?:,(hour|day|month|year)|,(-?\d{1,19}),(-?\d{1,19}),(\d{1,19}))?")


@dataclass(frozen=True, slots=True)
class TablePartition:
    """A table's partitioning, by ``unit`` or by a range; ``column`` is BigQuery's, empty for the time of arrival.

    ``expiry`` is how long a partition is kept, in seconds, 0 for ever; with ``requires_filter`` BigQuery refuses
    queries that read all partitions.
    """

    column: str
    unit: str = ""
    start: int = 0
    end: int = 0
    interval: int = 0
    expiry: int = 0
    requires_filter: bool = False

    def of(self, value: bytes) -> object:
        """Equal for values of one partition, as a load job takes them; NULL has one of its own."""
        if value == b"null":
            return None
        if not self.interval:
            return value[: _LENGTHS[self.unit]]
        number = int(value.strip(b'"'))
        return (number - self.start) // self.interval if self.start <= number < self.end else None

    def may_exceed(self, most: int) -> bool:
        """True if rows may well be in more partitions than that."""
        return (self.end - self.start) / self.interval > most if self.interval else self.unit == "hour"


def parse(spec: str) -> TablePartition:
    """Parses a table's value of the option; the column is the source's, and the unit is empty where none is named.

    Raises:
        ValueError: it is not valid.
    """
    match = _SPEC.fullmatch(spec.replace(" ", ""))
    if match is None:
        raise ValueError(
            f"{spec!r} is not a valid partitioning: write Column, Column,month or Column,START,END,INTERVAL"
        )
    column, unit, start, end, interval = match.groups()
    if interval is None:
        return TablePartition("" if column == ARRIVAL else column, unit or "")
    first, last, step = int(start), int(end), int(interval)
    if column == ARRIVAL or last <= first or step < 1 or (last - first) / step > _MOST_RANGES:
        raise ValueError(f"{spec!r} is not a valid partitioning: BigQuery takes 1 to {_MOST_RANGES} ranges of a column")
    return TablePartition(column, "", first, last, step)


def of_table(partition_by: Mapping[str, str], table: str) -> str:
    """A table's value of the option; empty if it has none."""
    return partition_by.get(table) or partition_by.get(ALL_OTHERS, "")


def to_text(partition_by: Mapping[str, str]) -> str:
    """The option as text, the same for equal options; empty for none."""
    return orjson.dumps(dict(partition_by), option=orjson.OPT_SORT_KEYS).decode() if partition_by else ""


def fitted(spec: str, types: Mapping[str, tuple[str, str]], *, merges: bool) -> TablePartition:
    """The partitioning of a table.

    Args:
        spec: its value of the option.
        types: its columns by their names in the source: name and type in BigQuery, the type empty if it is repeated.
        merges: whether changes are merged into the table.

    Raises:
        ValueError: the table cannot be partitioned like this.
    """
    wanted = parse(spec)
    if not wanted.column:
        if merges:
            raise ValueError(f"{ARRIVAL} is for modes that append rows")
        return TablePartition("", wanted.unit or "day")
    if wanted.column not in types:
        raise ValueError(f"there is no column {wanted.column}")
    name, kind = types[wanted.column]
    if wanted.interval:
        if kind != "INT64":
            raise ValueError(f"column {wanted.column} is {kind or 'repeated'} in BigQuery, and ranges are of INT64")
        return TablePartition(name, "", wanted.start, wanted.end, wanted.interval)
    if kind not in ("DATE", "TIMESTAMP") or (kind == "DATE" and wanted.unit == "hour"):
        raise ValueError(
            f"column {wanted.column} is {kind or 'repeated'} in BigQuery:"
            f" {wanted.unit or 'day'}s are of {'TIMESTAMP' if wanted.unit == 'hour' else 'DATE or TIMESTAMP'}"
        )
    return TablePartition(name, wanted.unit or "day")
