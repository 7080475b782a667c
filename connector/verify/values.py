"""Values of columns by their kinds: two texts of one value are equal, as far as a destination can tell. Pure."""

from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation

import numpy as np

from connector.config.replicas import ValuePrecision
from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema
from connector.core.timestamps import format_rfc3339, parse
from connector.verify.rows import Columns, equal, key_of

_EXACT = Context(prec=200_000)
"""More digits than any number of Spanner's has."""

_Convert = Callable[[object, ValuePrecision], object]


def _float32(value: object, _precision: ValuePrecision) -> object:
    return float(np.float32(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _decimal(value: object, _precision: ValuePrecision) -> object:
    """A number's digits without zeros at the end; NaN is a text."""
    if not isinstance(value, str):
        return value
    try:
        number = Decimal(value)
    except InvalidOperation:
        return value
    return str(number.normalize(_EXACT)) if number.is_finite() else str(number)


def _timestamp(value: object, precision: ValuePrecision) -> object:
    if not isinstance(value, str):
        return value
    try:
        nanoseconds = parse(value)
    except ValueError:
        return value
    return format_rfc3339(nanoseconds - nanoseconds % precision.timestamp)


_CONVERTERS: Mapping[ColumnKind, _Convert] = {
    ColumnKind.FLOAT32: _float32,
    ColumnKind.NUMERIC: _decimal,
    ColumnKind.PG_NUMERIC: _decimal,
    ColumnKind.TIMESTAMP: _timestamp,
}
"""Values of other kinds have one text."""


class TableValues:
    """Compares the values of a table's rows.

    Args:
        schema: the table's.
        precision: what the destination cannot tell apart.
    """

    def __init__(self, schema: TableSchema, precision: ValuePrecision) -> None:
        self._precision = precision
        self._types = {column.name: SpannerType.parse(column.type) for column in schema.columns}
        self._keys = schema.primary_keys
        self._keys_vary = any(self._types[name].kind in _CONVERTERS for name in self._keys if name in self._types)

    def key(self, columns: Columns) -> str:
        """The key of a row as canonical JSON."""
        if not self._keys_vary:
            return key_of(self._keys, columns)
        return key_of(self._keys, {name: self._converted(name, columns.get(name)) for name in self._keys})

    def equal(self, name: str, one: object, other: object) -> bool:
        """Whether two values of a column are equal."""
        return equal(one, other) or equal(self._converted(name, one), self._converted(name, other))

    def _converted(self, name: str, value: object) -> object:
        column_type = self._types.get(name)
        if column_type is None:
            return value
        if column_type.is_array and value is None and self._precision.null_array_is_empty:
            return []
        convert = _CONVERTERS.get(column_type.kind)
        if convert is None:
            return value
        if column_type.is_array and isinstance(value, list):
            return [convert(element, self._precision) for element in value]
        return convert(value, self._precision)
