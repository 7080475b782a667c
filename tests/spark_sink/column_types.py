"""A type object and a value, as in a change record, for each kind of column."""

import orjson

from connector.core.column_kinds import CATALOGUE, ColumnKind

TYPE_OBJECTS: dict[ColumnKind, str] = {
    ColumnKind.UNKNOWN: '{"code":"A_NEWER_TYPE"}',
    **{entry.kind: orjson.dumps(entry.type_object).decode() for entry in CATALOGUE},
}

VALUES: dict[ColumnKind, str] = {
    ColumnKind.BOOL: "true",
    ColumnKind.INT64: '"-9223372036854775808"',
    ColumnKind.FLOAT32: "1.5",
    ColumnKind.FLOAT64: "0.1",
    ColumnKind.NUMERIC: '"-0.000000001"',
    ColumnKind.PG_NUMERIC: '"1.10"',
    ColumnKind.STRING: '"text"',
    ColumnKind.BYTES: '"AAEC"',
    ColumnKind.DATE: '"0001-01-01"',
    ColumnKind.TIMESTAMP: '"2026-01-02T03:04:05.123456789Z"',
    ColumnKind.JSON: '"{\\"a\\":[1,null]}"',
    ColumnKind.UUID: '"00000000-0000-4000-8000-000000000000"',
    ColumnKind.INTERVAL: '"P1Y2M3DT4H5M6.5S"',
    ColumnKind.ENUM: '"3"',
    ColumnKind.PROTO: '"CgA="',
    ColumnKind.UNKNOWN: '"a"',
}
