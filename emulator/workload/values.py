"""Draws random values of every column type, edge cases included, in Spanner's JSON encoding.

The mutation, the change stream and the table's content use the same encoding, so that committed values can be compared
with received ones without conversion. Values that the emulator changes on their way to a change stream are therefore
omitted: NaN and infinities (reported as null), years before 1000 (reported without leading zeros) and fractions of a
second (cut off) in a TIMESTAMP, commit timestamps written by the server (reported as the year 9999), NULL elements of
arrays (the emulator crashes), and numbers and JSON in a form that is not canonical.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Sequence
from random import Random

from emulator.workload.tables import Column

Value = None | bool | float | str | list["Value"]
"""A value in Spanner's JSON encoding: an INT64 is a string of digits, BYTES are base64, JSON is its text."""

TEXTS = (
    *("", " ", "a", "0", "null", "NULL", "it's", 'say "hi"', "back\\slash", "tab\tnew\nline\r", "naïve café"),
    *(
        "日本語テキスト",
        "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "e\u0301",
        "\u2028",
        "\x01\x7f",
        "%s ${x} {{y}}",
        "-- ; DROP",
    ),
    *("﻿bom", "1e5", "true", "\U0010ffff"),
)
_INT64 = (0, 1, -1, 2**63 - 1, -(2**63), 2**53, 2**53 + 1, -(2**53) - 1, 2**31, 255)
_FLOAT64 = (0.0, -1.5, 0.1, 1e300, -1e-300, 1.7976931348623157e308, 5e-324, 2.5, 123456789.125)
_FLOAT32 = (0.0, -1.5, 0.5, 3.4028234663852886e38, 1.401298464324817e-45, 16777216.0, -0.25)
_NUMERIC = (
    *("0", "1", "-1", "0.000000001", "-0.000000001", "3.14", "1234567890123456789012345.123456789"),
    *("99999999999999999999999999999.999999999", "-99999999999999999999999999999.999999999"),
)
_BYTES = (b"", b"\x00", b"\xff\xfe", b"text", bytes(range(256)))
_DATES = ("0001-01-01", "9999-12-31", "1970-01-01", "2024-02-29", "1582-10-15")
_TIMESTAMPS = (
    *("1000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59Z"),
    "2016-12-31T23:59:59Z",
)
_PAST_TIMESTAMPS = ("1970-01-01T00:00:00Z", "2001-09-09T01:46:40Z", "2024-02-29T12:00:00Z")
_JSON_ALIKE = ("{}", "[]", "null", "true", "0", '"text"')
_JSON = {
    "googlesql": (*_JSON_ALIKE, '{"a":1,"b":[1,2,{"c":null}]}', '{"q":"\\"","é":"日本"}', "[1.5,-3]"),
    "postgresql": (*_JSON_ALIKE, '{"a": 1, "b": [1, 2, {"c": null}]}', '{"q": "\\"", "é": "日本"}', "[1.5, -3]"),
}


def _text(random: Random) -> str:
    roll = random.random()
    if roll < 0.02:
        return random.choice(("x", "é", "日", '"', "\\")) * random.randrange(1_000, 8_000)
    return random.choice(TEXTS) if roll < 0.4 else "".join(random.choices("abcdefghij ABC", k=random.randrange(1, 24)))


def _int64(random: Random) -> str:
    return str(random.choice(_INT64) if random.random() < 0.3 else random.randrange(-(10**6), 10**12))


def _float32(random: Random) -> float:
    if random.random() < 0.3:
        return random.choice(_FLOAT32)
    return float(struct.unpack("f", struct.pack("f", random.uniform(-1e6, 1e6)))[0])


def _float64(random: Random) -> float:
    return random.choice(_FLOAT64) if random.random() < 0.3 else random.uniform(-1e9, 1e9)


def _numeric(random: Random) -> str:
    if random.random() < 0.3:
        return random.choice(_NUMERIC)
    return f"{random.randrange(-(10**9), 10**9)}.{random.randrange(1, 10**6, 10)}1"


def _bytes(random: Random) -> str:
    content = random.choice(_BYTES) if random.random() < 0.3 else random.randbytes(random.randrange(1, 40))
    return base64.b64encode(content).decode()


def _day(random: Random) -> str:
    return f"{random.randrange(1900, 2100)}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"


def _date(random: Random) -> str:
    return random.choice(_DATES) if random.random() < 0.3 else _day(random)


def _timestamp(random: Random) -> str:
    if random.random() < 0.3:
        return random.choice(_TIMESTAMPS)
    hour, minute, second = (random.randrange(limit) for limit in (24, 60, 60))
    return f"{_day(random)}T{hour:02}:{minute:02}:{second:02}Z"


_DRAW: dict[str, Callable[[Random], Value]] = {
    "BOOL": lambda random: random.random() < 0.5,
    "INT64": _int64,
    "FLOAT32": _float32,
    "FLOAT64": _float64,
    "NUMERIC": _numeric,
    "STRING": _text,
    "BYTES": _bytes,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
}


def draw(random: Random, column: Column, dialect: str) -> Value:
    """Draws a value for a column: sometimes NULL if it is nullable, an array of 0 to 4 elements if it is an array."""
    if column.nullable and random.random() < 0.1:
        return None
    if column.array:
        return [_scalar(random, column, dialect) for _ in range(random.choice((0, 0, 1, 2, 4)))]
    return _scalar(random, column, dialect)


def draw_key(random: Random, columns: Sequence[Column], spread: int) -> tuple[Value, ...]:
    """Draws a key of these columns out of some `spread` different ones, so that deleted keys are inserted again."""
    return tuple(_key_part(random, column.type, spread) for column in columns)


def _scalar(random: Random, column: Column, dialect: str) -> Value:
    if column.commit_timestamp:  # such a column accepts no future timestamp
        return random.choice(_PAST_TIMESTAMPS)
    if column.type == "JSON":
        return random.choice(_JSON[dialect])
    return _DRAW[column.type](random)


def _key_part(random: Random, kind: str, spread: int) -> Value:
    if kind == "INT64":
        return str(random.choice(_INT64) if random.random() < 0.05 else random.randrange(spread))
    if kind == "STRING":
        return random.choice(TEXTS) if random.random() < 0.1 else f"key-{random.randrange(spread)}"
    if kind == "TIMESTAMP":
        return random.choice(_TIMESTAMPS)
    if kind == "BOOL":
        return random.random() < 0.5
    return random.choice(_DATES) if kind == "DATE" else base64.b64encode(random.choice(_BYTES)).decode()
