"""Values of every kind of column, encoded as Spanner sends them, with what Arrow should hold of them."""

from datetime import date, datetime
from decimal import Decimal
from math import inf, nan
from typing import Any
from zoneinfo import ZoneInfo

from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from connector.core.column_kinds import ColumnKind

UTC = ZoneInfo("UTC")
LARGE = "99999999999999999999999999999.999999999"

CASES: dict[ColumnKind, list[tuple[Any, Any]]] = {
    ColumnKind.BOOL: [(True, True), (False, False)],
    ColumnKind.INT64: [("-9223372036854775808", -(2**63)), ("0", 0), ("9223372036854775807", 2**63 - 1)],
    ColumnKind.FLOAT32: [(1.5, 1.5), (0.10000000149011612, 0.10000000149011612), ("Infinity", inf)],
    ColumnKind.FLOAT64: [(0.1, 0.1), (-0.0, -0.0), ("NaN", nan), ("-Infinity", -inf), (5e-324, 5e-324)],
    ColumnKind.NUMERIC: [
        ("-0.000000001", Decimal("-0.000000001")),
        ("1", Decimal("1.000000000")),
        (LARGE, Decimal(LARGE)),
    ],
    ColumnKind.PG_NUMERIC: [("1.10", "1.10"), ("NaN", "NaN"), ("1" * 200, "1" * 200)],
    ColumnKind.STRING: [
        ("", ""),
        ("naïve \U0001f600", "naïve \U0001f600"),
        ('a "b"\\\n', 'a "b"\\\n'),
        ("x" * 300,) * 2,
    ],
    ColumnKind.BYTES: [("", b""), ("AA==", b"\0"), ("//79", b"\xff\xfe\xfd"), ("AAE=", b"\0\1")],
    ColumnKind.DATE: [("0001-01-01", date(1, 1, 1)), ("9999-12-31", date(9999, 12, 31))],
    ColumnKind.TIMESTAMP: [
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("1969-12-31T23:59:59.999999999Z", datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        ("2026-01-02T03:04:05.5Z", datetime(2026, 1, 2, 3, 4, 5, 500000, tzinfo=UTC)),
    ],
    ColumnKind.JSON: [('{"a":[1,null]}', '{"a":[1,null]}'), ("null", "null")],
    ColumnKind.UUID: [("00000000-0000-4000-8000-000000000000",) * 2],
    ColumnKind.INTERVAL: [("P1Y2M3DT4H5M6.5S",) * 2],
    ColumnKind.ENUM: [("3", 3)],
    ColumnKind.PROTO: [("CgA=", b"\n\0")],
    ColumnKind.UNKNOWN: [("a", "a"), (["b", 1.0, None], '["b",1.0,null]'), (True, "true")],
}
"""For each kind some values as JSON, and as Python has them of Arrow."""


def encoded(value: object) -> bytes:
    """Returns the bytes of a google.protobuf.Value."""
    found: bytes = ParseDict(value, Value()).SerializeToString() if value is not None else b"\x08\x00"
    return found
