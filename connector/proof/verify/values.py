"""Values of columns by their kinds: two texts of one value are equal, as far as a destination can tell. Pure."""

import math
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import TypeGuard

import numpy as np

from connector.config.replicas import ValuePrecision
from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema
from connector.core.timestamps import format_rfc3339, parse
from connector.envelope.opencdc import EXACT
from connector.proof.verify.rows import Columns, equal, key_of

_EXACT = Context(prec=200_000)
"""More digits than any number of Spanner's has."""

_Convert = Callable[[object, ValuePrecision], object]


def _float32(value: object, _precision: ValuePrecision) -> object:
    if not _is_number(value):
        return value
    with np.errstate(over="ignore"):  # a destination may hold what no FLOAT32 is
        return float(np.float32(float(value)))


def _float64(value: object, _precision: ValuePrecision) -> object:
    return float(value) if _is_number(value) else value


def _is_number(value: object) -> TypeGuard[int | float | Decimal]:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _decimal(value: object, _precision: ValuePrecision) -> object:
    """A number's digits without zeros at the end; NaN is a text."""
    if not isinstance(value, str):
        return value
    try:
        number = Decimal(value)
    except InvalidOperation:
        return value
    return _digits(number) if number.is_finite() else str(number)


def _digits(number: Decimal) -> str:
    """The same for all numbers of one value: without zeros at the end, and without the sign of a zero."""
    try:
        return str(number.normalize(_EXACT)) if number else "0"
    except ArithmeticError:  # the exponent is too large
        return str(number)


def _timestamp(value: object, precision: ValuePrecision) -> object:
    if not isinstance(value, str):
        return value
    try:
        nanoseconds = parse(value)
    except ValueError:
        return value
    return format_rfc3339(nanoseconds - nanoseconds % precision.timestamp)


def _whole(value: object, precision: ValuePrecision) -> object:
    """An integer, which OpenCDC has as text beyond 53 bits."""
    if not precision.is_opencdc or not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        return value


def _json(value: object, precision: ValuePrecision) -> object:
    """A JSON value as the destination can hold it."""
    if isinstance(value, list):
        return [_json(element, precision) for element in value]
    if isinstance(value, dict):
        return {_json(name, precision): _json(element, precision) for name, element in value.items()}
    if precision.is_opencdc:
        return _as_in_opencdc(value)
    if precision.json_has_doubles and _is_number(value):
        return value if isinstance(value, int) and -(2**63) <= value < 2**64 else _double(value)
    return value


def _double(value: float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _as_in_opencdc(value: object) -> object:
    """A number that no double can represent is a text of its digits there, and half a surrogate pair its escape."""
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return value.encode(errors="backslashreplace").decode()
        number, is_integer = Decimal(value), value.lstrip("-").isdecimal()
    elif _is_number(value):
        number, is_integer = Decimal(str(value)), isinstance(value, int)
    else:
        return value
    return value if _is_double(number, is_integer=is_integer) else _digits(number)


def _is_double(number: Decimal, *, is_integer: bool) -> bool:
    if is_integer:
        return -EXACT <= number <= EXACT
    double = _double(number)
    return math.isfinite(double) and Decimal(repr(double)) == number


_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,9})?", re.ASCII)

_CONVERTERS: Mapping[ColumnKind, _Convert] = {
    ColumnKind.INT64: _whole,
    ColumnKind.ENUM: _whole,
    ColumnKind.FLOAT32: _float32,
    ColumnKind.FLOAT64: _float64,
    ColumnKind.JSON: _json,
    ColumnKind.UNKNOWN: _json,
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
        varying = (
            _CONVERTERS.keys() if precision.is_opencdc else _CONVERTERS.keys() - {ColumnKind.INT64, ColumnKind.ENUM}
        )
        self._keys_vary = any(self._types[name].kind in varying for name in self._keys if name in self._types)

    def key(self, columns: Columns) -> str:
        """The key of a row as canonical JSON."""
        if not self._keys_vary:
            return key_of(self._keys, columns)
        return key_of(self._keys, {name: self._converted(name, columns.get(name)) for name in self._keys})

    def equal(self, name: str, one: object, other: object) -> bool:
        """True if two values of a column are equal."""
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
