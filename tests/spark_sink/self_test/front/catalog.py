"""The statements that a front changes on their way to the emulator: DDL of change streams, INFORMATION_SCHEMA. Pure.

The emulator knows neither partition modes nor placements. Their options are removed from the DDL and remembered, and
tables that would show them are replaced by subqueries. The names are those of
https://cloud.google.com/spanner/docs/information-schema.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from emulator.workload.tables import Dialect

_CREATED = re.compile(r"\s*CREATE CHANGE STREAM (\w+)", re.IGNORECASE)
_DROPPED = re.compile(r"\s*DROP CHANGE STREAM (\w+)", re.IGNORECASE)
_MODE = re.compile(r",\s*partition_mode\s*=\s*'MUTABLE_KEY_RANGE'", re.IGNORECASE)
_PER_PLACEMENT = re.compile(r",\s*per_placement_tvf\s*=\s*true", re.IGNORECASE)
_FUNCTION = re.compile(r"\bFROM\s+(?:\"spanner\"\.)?[`\"]?(\w+)[`\"]?\s*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of DDL.

    Attributes:
        sql: as the emulator gets it.
        created: the change stream that it creates; empty if none.
        dropped: the change stream that it drops; empty if none.
        is_mutable: whether the stream is of the mode MUTABLE_KEY_RANGE.
        per_placement: whether it has a read function for each placement.
    """

    sql: str
    created: str = ""
    dropped: str = ""
    is_mutable: bool = False
    per_placement: bool = False


def statement_of(sql: str, *, has_placements: bool) -> Statement:
    """A statement without the options that the emulator refuses, of which per_placement_tvf needs placements."""
    created, dropped = _CREATED.match(sql), _DROPPED.match(sql)
    if created is None:
        return Statement(sql, dropped=dropped[1] if dropped else "")
    sent, modes = _MODE.subn("", sql)
    options = 0
    if has_placements:
        sent, options = _PER_PLACEMENT.subn("", sent)
    return Statement(sent, created[1], is_mutable=modes > 0, per_placement=options > 0)


def function_in(sql: str) -> str:
    """The read function that a statement calls, in lower case; empty if it calls none."""
    match = _FUNCTION.search(sql)
    return match[1].lower() if match else ""


@dataclass(slots=True)
class Catalog:
    """The rows of INFORMATION_SCHEMA that the emulator does not have.

    Attributes:
        placements: the names of all, the default one first.
        mutable: streams of the mode MUTABLE_KEY_RANGE, with whether each has a function for each placement.
        functions: the read functions of each stream, by the stream's name.
    """

    dialect: Dialect
    placements: tuple[str, ...]
    mutable: dict[str, bool] = field(default_factory=dict)
    functions: dict[str, list[str]] = field(default_factory=dict)

    def shown(self, sql: str) -> str:
        """A statement with subqueries in the place of the tables that show options, functions and placements."""
        for table, rows in (
            ("change_stream_options", self._options()),
            ("routines", self._routines()),
            ("placements", self._placements()),
        ):
            name = re.compile(rf"\binformation_schema\.{table}\b", re.IGNORECASE)
            sql = name.sub(f"({' UNION ALL '.join(rows)}) AS {table}", sql)  # names have no backslash
        return sql

    def _options(self) -> Iterable[str]:
        names = "change_stream_name, option_name, option_value"
        yield f"SELECT {names} FROM information_schema.change_stream_options"
        for stream, per_placement in self.mutable.items():
            yield _row(names, stream, "partition_mode", "MUTABLE_KEY_RANGE")
            if per_placement:
                yield _row(names, stream, "per_placement_tvf", "true")

    def _routines(self) -> Iterable[str]:
        names = "routine_schema, routine_name, routine_type"
        schema = "" if self.dialect == "googlesql" else "spanner"
        rows = [_row(names, schema, name, "FUNCTION") for every in self.functions.values() for name in every]
        return rows or [f"{_row(names, '', '', '')} LIMIT 0"]

    def _placements(self) -> Iterable[str]:
        names = "placement_name, is_default"
        if not self.placements:
            return [f"{_row(names, '', '')} LIMIT 0"]
        texts = ["YES", *("NO" for _ in self.placements[1:])]
        if self.dialect == "postgresql":
            return [_row(names, *row) for row in zip(self.placements, texts, strict=True)]
        return [
            f"SELECT '{placement}' AS placement_name, {'TRUE' if text == 'YES' else 'FALSE'} AS is_default"
            for placement, text in zip(self.placements, texts, strict=True)
        ]


def _row(names: str, *values: str) -> str:
    pairs = zip(names.split(", "), values, strict=True)
    return "SELECT " + ", ".join(f"'{value}' AS {name}" for name, value in pairs)
