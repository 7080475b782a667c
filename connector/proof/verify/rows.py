"""The state of rows after their changes, and how it differs from Spanner's. Pure.

Both sides have the values of Datastream's unified types. What was not captured of a row is absent, which is not NULL.
Changes are merged as they come, in any order, so that memory holds each row once, however often it has changed.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

import msgspec
import orjson

from connector.config.replicas import PARTIAL

INSERT, UPDATE, DELETE = "INSERT", "UPDATE", "DELETE"
OMITTED = "OMITTED"
"""A row of Spanner that no backfill delivers: the destination has it only if it has changed since."""
LATER = "LATER"
"""The change of a row that the destination holds as of a later timestamp."""

Columns = dict[str, object]
Order = tuple[int, int, int]
Key = tuple[str, str]
"""A row: its table, and the values of its key as JSON."""


class RowChange(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A change of a row, or the row as it is in Spanner.

    Attributes:
        table: the table's name.
        key: the values of the key, as canonical JSON.
        order: commit timestamp in nanoseconds since 1970, record sequence as a number, index of the mod.
        change: INSERT, UPDATE, PARTIAL, DELETE, OMITTED or LATER.
        payload: the text of a JSON object with the columns.
    """

    table: str
    key: str
    order: Order
    change: str
    payload: bytes


class RowKind(StrEnum):
    """The way in which a row differs."""

    MISSING = "missing"
    """The destination does not have it."""
    EXTRA = "extra"
    """Spanner does not have it."""
    DIFFERENT = "different"
    """Columns differ."""
    REPEATED = "repeated"
    """The destination has several rows of one key."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that differs, in the named columns; ``key`` has values of the row, which are never logged."""

    kind: RowKind
    table: str
    columns: tuple[str, ...]
    key: str


@dataclass(frozen=True, slots=True)
class Unsure:
    """A column whose value is this one or NULL: in a later update, null means NULL or not captured."""

    value: object


def key_of(names: Iterable[str], columns: Mapping[str, object]) -> str:
    """The key of a row as canonical JSON."""
    return canonical([_whole(columns.get(name)) for name in names])


def _whole(value: object) -> object:
    """A whole number as an integer: 1.0 and 1 are one key, and a server may write either."""
    if not isinstance(value, float | Decimal):
        return value
    number = float(value)  # of a FLOAT64: the numbers of other types are integers or texts
    return int(number) if number.is_integer() else number


def parsed(text: bytes | str) -> Columns:
    """The columns in the text of a JSON object. Numbers keep all their digits.

    Raises:
        ValueError: it is not a JSON object. The message contains no value.
    """
    try:
        node = json.loads(text, parse_float=Decimal)  # orjson makes floats of integers beyond 64 bits
    except ValueError:
        node = _of_long_integers(text)
    if not isinstance(node, dict):
        raise ValueError("a payload is not a JSON object") from None  # noqa: TRY004  # of a value, not of an argument
    return node


def _of_long_integers(text: bytes | str) -> object:
    """The JSON value of a text, or None; Python has no integers of so many digits as PostgreSQL's JSONB."""
    try:
        return json.loads(text, parse_float=Decimal, parse_int=Decimal)
    except ValueError:
        return None


def canonical(value: object) -> str:
    """A JSON value as text that is equal for equal values."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


@dataclass(slots=True)
class _Row:
    """A row, as far as its changes are known.

    Attributes:
        since: the last change that leaves nothing of the row before it: an INSERT or a DELETE.
        written: the last change that is not a DELETE.
        columns: each column with the change that it comes from.
        nulls: the last PARTIAL change that holds null, for each column of which there is one.
    """

    since: Order = (-1, 0, 0)
    written: Order = (-1, 0, -1)
    columns: dict[str, tuple[Order, object]] = field(default_factory=dict)
    nulls: dict[str, Order] = field(default_factory=dict)

    def begin(self, order: Order) -> None:
        self.since = order
        self.columns = {name: one for name, one in self.columns.items() if one[0] >= order}
        self.nulls = {name: at for name, at in self.nulls.items() if at >= order}

    def write(self, order: Order, columns: Columns, *, null_is_absent: bool) -> None:
        self.written = max(self.written, order)
        for name, value in columns.items():
            if value is None and null_is_absent:
                self.nulls[name] = max(order, self.nulls.get(name, order))
            elif name not in self.columns or self.columns[name][0] <= order:
                self.columns[name] = order, value

    def value(self, name: str) -> object:
        order, value = self.columns[name]
        return value if value is None or self.nulls.get(name, order) <= order else Unsure(value)


class MergedRows:
    """Rows after their changes, which are added in any order. A change that comes twice counts once."""

    def __init__(self) -> None:
        self._rows: dict[Key, _Row] = {}

    def add(self, change: RowChange) -> None:
        """Adds a change; one of the kind LATER is ignored.

        Raises:
            ValueError: its payload is not a JSON object.
        """
        if change.change == LATER:
            return
        row = self._rows.setdefault((change.table, change.key), _Row())
        if change.order < row.since:
            return
        is_update = change.change in (UPDATE, PARTIAL)
        if not is_update:
            row.begin(change.order)
        if change.change != DELETE:
            row.write(change.order, parsed(change.payload), null_is_absent=change.change == PARTIAL)

    def rows(self) -> dict[Key, Columns]:
        """The rows after all added changes; a value may be :class:`Unsure`."""
        return {
            key: {name: row.value(name) for name in row.columns}
            for key, row in self._rows.items()
            if row.written >= row.since
        }


def rows_after(changes: Iterable[RowChange]) -> dict[Key, Columns]:
    """The rows after all changes; see :class:`MergedRows`."""
    merged = MergedRows()
    for change in changes:
        merged.add(change)
    return merged.rows()


def differences(
    source: Mapping[Key, Columns],
    replica: Mapping[Key, Columns],
    equal_in: Callable[[str, str, object, object], bool] | None = None,
) -> Iterator[RowDifference]:
    """The rows of a destination that differ from Spanner's.

    Columns that Spanner does not have are ignored: they were dropped. Columns that the destination lacks count as
    NULL: they were added after the row's last change.

    Args:
        source: Spanner's rows.
        replica: the destination's.
        equal_in: whether two values of a column are equal, given the table and the column; None: :func:`equal`.
    """
    for row, wanted in source.items():
        held = replica.get(row)
        if held is None:
            yield RowDifference(RowKind.MISSING, row[0], (), row[1])
            continue
        columns = tuple(
            name
            for name, value in wanted.items()
            if not (equal(value, held.get(name)) if equal_in is None else equal_in(row[0], name, value, held.get(name)))
        )
        if columns:
            yield RowDifference(RowKind.DIFFERENT, row[0], columns, row[1])
    for table, key in replica.keys() - source.keys():
        yield RowDifference(RowKind.EXTRA, table, (), key)


def equal(one: object, other: object) -> bool:
    """True if two values are equal. A number may be written in several ways; to Python, 1 is True."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())
    return one == other
