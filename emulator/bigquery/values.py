"""Converts values of protocol buffers to BigQuery's types, and rejects invalid ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import orjson
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

Convert = Callable[[Any], object]
"""Converts a protocol buffer's value to a Python value; raises ValueError with an error message."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FIRST_MICROSECOND, _LAST_MICROSECOND = -62_135_596_800_000_000, 253_402_300_799_999_999
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?: ?(?:UTC|Z)|[+-]\d\d:\d\d)", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_EXACT = Context(prec=100)
_MOST_DIGITS = 1000


def converter(column_type: str, proto_type: int) -> Convert | None:
    """Returns the conversion from a field's type to a column's type; None if they are not compatible."""
    return _CONVERTERS.get(column_type, {}).get(proto_type)


def _same(value: Any) -> object:
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):  # the library returns bytes for invalid UTF-8 in proto2
        raise ValueError("the string is not UTF-8")  # noqa: TRY004 - an error of the value
    return value


def _day(value: int) -> date:
    if not _FIRST_DAY <= value <= _LAST_DAY:
        raise ValueError("the date is outside the years 1 to 9999")
    return date.fromordinal(_EPOCH_DAY + value)


def _day_of_text(value: Any) -> date:
    text = _text(value)
    if not _DATE.fullmatch(text):
        raise ValueError("the date is not of the form YYYY-MM-DD")
    year, month, day = text.split("-")
    return date(int(year), int(month), int(day))


def _timestamp(value: int) -> datetime:
    if not _FIRST_MICROSECOND <= value <= _LAST_MICROSECOND:
        raise ValueError("the timestamp is outside the years 1 to 9999")
    return _EPOCH + timedelta(microseconds=value)


def _timestamp_of_text(value: Any) -> datetime:
    text = _text(value)
    if not _TIMESTAMP.fullmatch(text):
        raise ValueError("the timestamp is not of the form YYYY-MM-DD HH:MM:SS.ffffff+00:00")
    try:
        return datetime.fromisoformat(text.replace(" UTC", "Z").replace("UTC", "Z").replace(" Z", "Z")).astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the timestamp is outside the years 1 to 9999") from error


def _json(value: Any) -> str:
    text = _text(value)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError("the string is not JSON") from error
    return text


class _Numeric:
    """Decimals with `scale` decimal places whose unscaled value is at most `most`; bytes are little-endian."""

    def __init__(self, name: str, scale: int, most: int, width: int) -> None:
        self._name = name
        self._scale = scale
        self._most = Decimal(most).scaleb(-scale, _EXACT)
        self._width = width

    def of_text(self, value: Any) -> Decimal:
        text = _text(value)
        if not _DECIMAL.fullmatch(text) or len(text) > _MOST_DIGITS:
            raise ValueError(f"the string is not a {self._name}")
        return self._checked(Decimal(text))

    def of_bytes(self, value: bytes) -> Decimal:
        if not 0 < len(value) <= self._width:
            raise ValueError(f"a {self._name} has at most {self._width} bytes")
        unscaled = int.from_bytes(value, "little", signed=True)
        return self._checked(Decimal(unscaled).scaleb(-self._scale, _EXACT))

    def _checked(self, value: Decimal) -> Decimal:
        if value.copy_abs() > self._most:
            raise ValueError(f"the number is outside the range of {self._name}")
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        fraction = digits[exponent + self._scale :] if exponent < -self._scale else ()
        if any(fraction):
            raise ValueError(f"the number has more than {self._scale} decimals")
        return value


_NUMERIC = _Numeric("NUMERIC", 9, 10**38 - 1, 16)
_BIGNUMERIC = _Numeric("BIGNUMERIC", 38, 2**255 - 1, 32)

_INTEGERS = (Field.TYPE_INT64, Field.TYPE_INT32, Field.TYPE_SINT64, Field.TYPE_SINT32, Field.TYPE_SFIXED64,
             Field.TYPE_SFIXED32, Field.TYPE_UINT32, Field.TYPE_FIXED32)  # fmt: skip
_OF_TEXT: Mapping[int, Convert] = {Field.TYPE_STRING: _text}
_CONVERTERS: Mapping[str, Mapping[int, Convert]] = {
    "BOOL": {Field.TYPE_BOOL: _same},
    "INT64": dict.fromkeys(_INTEGERS, _same),
    "FLOAT64": {Field.TYPE_DOUBLE: _same, Field.TYPE_FLOAT: _same},
    "STRING": _OF_TEXT,
    "BYTES": {Field.TYPE_BYTES: _same},
    "DATE": {Field.TYPE_INT32: _day, Field.TYPE_INT64: _day, Field.TYPE_STRING: _day_of_text},
    "TIMESTAMP": {Field.TYPE_INT64: _timestamp, Field.TYPE_STRING: _timestamp_of_text},
    "NUMERIC": {Field.TYPE_STRING: _NUMERIC.of_text, Field.TYPE_BYTES: _NUMERIC.of_bytes},
    "BIGNUMERIC": {Field.TYPE_STRING: _BIGNUMERIC.of_text, Field.TYPE_BYTES: _BIGNUMERIC.of_bytes},
    "JSON": {Field.TYPE_STRING: _json},
    "DATETIME": _OF_TEXT,
    "TIME": _OF_TEXT,
    "GEOGRAPHY": _OF_TEXT,
    "INTERVAL": _OF_TEXT,
}
