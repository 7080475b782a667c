"""The key of a row, which is equal however its values are written. Pure.

A change record and a read of the same row may write a value differently: the zeros at the end of a fraction, a whole
number with a point, base64 without its padding.
"""

import math
from base64 import b64decode
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema
from connector.core.timestamps import parse

Key = tuple[object, ...]
Kinds = Mapping[str, ColumnKind]

_FLOATS = (ColumnKind.FLOAT32, ColumnKind.FLOAT64)
_NUMERICS = (ColumnKind.NUMERIC, ColumnKind.PG_NUMERIC)


def row_key(values: Mapping[str, object], columns: Iterable[str], kinds: Kinds) -> Key:
    """The key of a row, given its columns' values as parsed JSON; columns without a kind are compared as they are."""
    return tuple(_normal(kinds.get(name), values[name]) for name in columns)


@lru_cache(maxsize=1024)
def kinds_of(schema: TableSchema) -> Kinds:
    """The kinds of the columns of a table's key."""
    keys = frozenset(schema.primary_keys)
    return {column.name: SpannerType.parse(column.type).kind for column in schema.columns if column.name in keys}


def _normal(kind: ColumnKind | None, value: object) -> object:
    """A value of a kind; one that is not written as its kind is, as it is."""
    try:
        if kind in _FLOATS and isinstance(value, int | float | str):
            number = float(value)
            return "NaN" if math.isnan(number) else number
        if not isinstance(value, str):
            return value
        match kind:
            case ColumnKind.TIMESTAMP:
                return parse(value)
            case ColumnKind.BYTES | ColumnKind.PROTO:
                return b64decode(value.rstrip("=") + "==")
            case ColumnKind.UUID:
                return value.lower()
        if kind in _NUMERICS:
            decimal = Decimal(value)
            return decimal if decimal.is_finite() else value
    except (ValueError, InvalidOperation):
        pass
    return value
