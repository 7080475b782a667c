"""The state of rows after their changes, and how it differs from Spanner's. Pure.

Both sides have the values of Datastream's unified types. What was not captured of a row is absent, which is not NULL.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import orjson

INSERT, UPDATE, DELETE = "INSERT", "UPDATE", "DELETE"
LATER = "LATER"
"""The change of a row that the destination holds as of a later timestamp."""

Columns = dict[str, object]
Key = tuple[str, str]
"""A row: its table, and the values of its key as JSON."""


class RowChange(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A change of a row, or the row as it is in Spanner.

    Attributes:
        table: the table's name.
        key: the values of the key, as canonical JSON.
        order: commit timestamp in nanoseconds since 1970, record sequence as a number, index of the mod.
        change: INSERT, UPDATE, DELETE or LATER.
        payload: the text of a JSON object with the columns.
    """

    table: str
    key: str
    order: tuple[int, int, int]
    change: str
    payload: bytes


class RowKind(StrEnum):
    """How a row differs."""

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


def key_of(names: Iterable[str], columns: Mapping[str, object]) -> str:
    """The key of a row as canonical JSON."""
    return canonical([_whole(columns.get(name)) for name in names])


def _whole(value: object) -> object:
    """A whole number as an integer: 1.0 and 1 are one key, and a server may write either."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parsed(text: bytes | str) -> Columns:
    """The columns in the text of a JSON object.

    Raises:
        ValueError: it is not a JSON object. The message contains no value.
    """
    try:
        node = json.loads(text)  # not orjson, which makes floats of integers beyond 64 bits
    except ValueError:
        node = None
    if not isinstance(node, dict):
        raise ValueError("a payload is not a JSON object") from None  # noqa: TRY004  # of a value, not of an argument
    return node


def canonical(value: object) -> str:
    """A JSON value as text that is equal for equal values."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def rows_after(changes: Iterable[RowChange]) -> dict[Key, Columns]:
    """The rows after all changes, whatever order they come in. A change that comes twice counts once.

    Those of the kind LATER are ignored.
    """
    rows: dict[Key, Columns] = {}
    for change in sorted(changes, key=lambda one: one.order):
        row = change.table, change.key
        if change.change == LATER:
            continue
        if change.change == DELETE:
            rows.pop(row, None)
        elif change.change == UPDATE and row in rows:
            rows[row] |= parsed(change.payload)
        else:
            rows[row] = parsed(change.payload)
    return rows


def repeated(rows: Iterable[RowChange]) -> Iterator[RowDifference]:
    """The keys of which a destination without a history has several rows."""
    counts = Counter((row.table, row.key) for row in rows)
    for (table, key), count in counts.items():
        if count > 1:
            yield RowDifference(RowKind.REPEATED, table, (), key)


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
    """Whether two values are equal. A number may be written in several ways; to Python, 1 is True."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())
    return one == other
