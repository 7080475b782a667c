"""The section ``source.backfill``: which rows are delivered as of one timestamp, before their changes."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import ConfigDict, Field

from connector.errors import ConfigurationError

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_WHERE = re.compile(r"where\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BackfillRules:
    """The rows of a backfill.

    Attributes:
        exclude: shell patterns of the tables that are left out, unless ``--table`` names them.
        where: by the name of a table, a condition in Spanner's SQL that its rows must satisfy.
        max_tasks: the most tasks of each backfill that read at once; None for what Spark's cores allow.
        new_tables: whether ``run`` makes a backfill of each table that the stream watches since a later time.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    exclude: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    max_tasks: Annotated[int, Field(ge=1)] | None = None
    new_tables: bool = False

    def __post_init__(self) -> None:
        for table, condition in self.where.items():
            if fault := _fault(condition):
                raise ValueError(f"where.{table}: {fault}")

    def excludes(self, table: str) -> bool:
        """True if a backfill leaves a table out."""
        return any(fnmatchcase(table, pattern) for pattern in self.exclude)


def check_bounded(placements: Collection[str] | None, tables: Iterable[str], conditions: Mapping[str, str]) -> None:
    """Checks that no table is read whole where the stream is of some placements: tables are read in all placements.

    Args:
        placements: those of the stream; None for all.
        tables: the names of the tables to read.
        conditions: in SQL, by the names of tables.

    Raises:
        ConfigurationError: tables have no condition.
    """
    if placements is None:
        return
    if unbounded := sorted(set(tables).difference(conditions)):
        names = ", ".join(unbounded)
        what = f"source.placements: rows of {names} would be read in every placement: set source.backfill.where"
        raise ConfigurationError(
            [f"{what} for each of these tables, to a condition of the rows to read (TRUE for all)"]
        )


def _fault(condition: str) -> str:
    """The reason why a text is no condition between parentheses, as far as Spanner is not needed; or empty."""
    if not condition.strip():
        return "the condition is empty: omit it to deliver every row"
    if _WHERE.match(condition.strip()):
        return "write the condition without WHERE"
    if "\\" in condition:  # what it escapes depends on the dialect
        return ""
    bare, depth = _QUOTED.sub("", condition), 0
    for character in bare:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
    if depth:
        return "its parentheses do not match"
    return "a condition has no semicolon" if ";" in bare else ""
