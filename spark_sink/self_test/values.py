"""Random values of every type in Spanner's JSON encoding, and what makes a value comparable. Pure.

In that encoding an INT64 is a text of digits, BYTES are base64, JSON is its text. The library's mutations accept it.
"""

import base64
import json
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from random import Random

from connector.core.timestamps import parse
from spark_sink.self_test.tables import WorkloadColumn

Value = None | bool | float | str | list["Value"]
"""A value in Spanner's JSON encoding."""

_INT64 = ("0", "-1", str(2**63 - 1), str(-(2**63)), str(2**53 + 1))
_FLOAT64 = (0.0, -1.5, 0.1, 1e300, 5e-324)
_FLOAT32 = (0.0, -1.5, 0.5, 16777216.0)
_NUMERIC = ("0", "-0.000000001", "3.14", "99999999999999999999999999999.999999999")
_STRING = ("", " ", "it's", 'say "hi"', "back\\slash", "tab\tnew\nline", "naïve café", "日本語", "\U0001f600", "NULL")
_BYTES = (b"", b"\x00", b"\xff\xfe", bytes(range(256)))
_DATE = ("0001-01-01", "9999-12-31", "1970-01-01", "2024-02-29")
_JSON = ("{}", "[]", '"text"', '{"a": 1, "b": [1, 2, {"c": null}]}', '{"q": "\\"", "é": "日本"}')


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits within which a server returns values as they were written.

    The official emulator changes NaN and fractions of a second on their way to a change stream, and ends when an array
    holds NULL.

    Attributes:
        is_emulator: whether these values are to be omitted.
        digits: of a TIMESTAMP's fraction: 9 in GoogleSQL, 6 in PostgreSQL.
    """

    is_emulator: bool
    digits: int


def draw(random: Random, column: WorkloadColumn, limits: Limits) -> Value:
    """A value for a column outside a key, sometimes NULL."""
    if random.random() < 0.1:
        return None
    if not column.is_array:
        return scalar(random, column.kind, limits)
    return [_element(random, column.kind, limits) for _ in range(random.choice((0, 1, 2, 4)))]


def _element(random: Random, kind: str, limits: Limits) -> Value:
    if not limits.is_emulator and random.random() < 0.2:
        return None
    return scalar(random, kind, limits)


def scalar(random: Random, kind: str, limits: Limits) -> Value:
    """A value of a type, never NULL."""
    return _DRAW[kind](random, limits)


def _special(limits: Limits) -> tuple[Value, ...]:
    return () if limits.is_emulator else ("NaN", "Infinity", "-Infinity")


def _day(random: Random) -> str:
    return f"{random.randrange(1900, 2100)}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"


def _timestamp(random: Random, limits: Limits) -> Value:
    day = _day(random)
    fraction = "" if limits.is_emulator else f".{random.randrange(10**limits.digits):0{limits.digits}}"
    return random.choice((f"{day}T12:34:56{fraction}Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"))


_DRAW: dict[str, Callable[[Random, Limits], Value]] = {
    "BOOL": lambda random, _: random.random() < 0.5,
    "INT64": lambda random, _: random.choice((*_INT64, str(random.randrange(-(10**12), 10**12)))),
    "FLOAT32": lambda random, limits: random.choice(
        (*_FLOAT32, _rounded(random.uniform(-1e6, 1e6)), *_special(limits))
    ),
    "FLOAT64": lambda random, limits: random.choice((*_FLOAT64, random.uniform(-1e9, 1e9), *_special(limits))),
    "NUMERIC": lambda random, _: random.choice(
        (*_NUMERIC, f"{random.randrange(-(10**9), 10**9)}.{random.randrange(1, 10**6)}")
    ),
    "STRING": lambda random, _: random.choice(
        (*_STRING, "x" * random.randrange(1000), f"text-{random.randrange(10**6)}")
    ),
    "BYTES": lambda random, _: base64.b64encode(random.choice((*_BYTES, random.randbytes(20)))).decode(),
    "DATE": lambda random, _: random.choice((*_DATE, _day(random))),
    "TIMESTAMP": _timestamp,
    "JSON": lambda random, _: random.choice((*_JSON, json.dumps({"n": random.randrange(10**6)}))),
    "UUID": lambda random, _: str(uuid.UUID(int=random.getrandbits(128), version=4)),
}


def _rounded(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def written(column: WorkloadColumn, value: Value) -> object:
    """The comparable form of a value that was written; it may be a part of a set."""
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(_comparable(column.kind, one, is_event=False) for one in value)
    return _comparable(column.kind, value, is_event=False)


def received(column: WorkloadColumn, value: object) -> object:
    """The comparable form of a value of an event's payload.

    Raises:
        ValueError, TypeError, ArithmeticError: it is not a value of the column's type.
    """
    if value is None:
        return None
    if not column.is_array:
        return _comparable(column.kind, value, is_event=True)
    if not isinstance(value, list):
        raise TypeError("not an array")
    return tuple(_comparable(column.kind, one, is_event=True) for one in value)


def _comparable(kind: str, value: object, *, is_event: bool) -> object:
    if value is None:
        return None
    if kind == "JSON":
        node = value if is_event else json.loads(str(value))
        return json.dumps(node, sort_keys=True)
    return _COMPARABLE[kind](value)


def _float(value: object) -> object:
    number = float(str(value))
    return "NaN" if number != number else number  # NaN differs from itself


def _exact_float32(value: object) -> object:
    number = _float(value)
    return _rounded(number) if isinstance(number, float) and abs(number) < 3.5e38 else number


_COMPARABLE: dict[str, Callable[[object], object]] = {
    "BOOL": lambda value: {"True": True, "False": False}[str(value)],
    "INT64": lambda value: int(str(value)),
    "FLOAT32": _exact_float32,
    "FLOAT64": _float,
    "NUMERIC": lambda value: Decimal(str(value)),
    "STRING": str,
    "BYTES": lambda value: base64.b64decode(str(value), validate=True),
    "DATE": str,
    "TIMESTAMP": lambda value: parse(str(value)),
    "UUID": str,
}
