"""The values of a load job: each as BigQuery reads it from a line of JSON. Pure.

A value that BigQuery does not take would end the job, and with it the rows of all others; so it is rejected here.
"""

import json
import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal

import msgspec
import numpy as np
import orjson

from connector.core.column_kinds import ColumnKind, Layout
from connector.core.timestamps import MICROSECOND, format_rfc3339, parse
from spark_sink.sinks.bigquery.rows.reasons import DIGITS, no_key, null_in_array, too_fine_key, unfit_number
from spark_sink.sinks.bigquery.tables.table import TableColumn


class RejectedRowError(Exception):
    """A row that the table cannot hold. The message names the column, never the value."""


def loaded(column: TableColumn, value: msgspec.Raw) -> msgspec.Raw:
    """A value as a load job of JSON takes it.

    Raises:
        RejectedRowError: the column cannot hold it.
    """
    text = bytes(value)
    if text == b"null":
        if column.field.required:
            raise RejectedRowError(no_key(column))
        return msgspec.Raw(b"[]") if column.field.repeated else value
    try:
        return msgspec.Raw(_read(column, text).replace(b"\n", b" ").replace(b"\r", b" "))  # a line is one line
    except (ValueError, TypeError):  # not as the cause, which may hold the value
        raise RejectedRowError(f"column {column.name} holds a value that does not fit its type") from None


def _read(column: TableColumn, value: bytes) -> bytes:
    if column.layout is Layout.JSON_ARRAY:
        return _document(_as_json(column, value))
    read = LOADED_VALUES[column.kind]
    if not column.field.repeated:
        return read(column, value)
    elements = [bytes(element) for element in msgspec.json.decode(value, type=list[msgspec.Raw])]
    if b"null" in elements:
        raise RejectedRowError(null_in_array(column))
    return b"[" + b",".join(read(column, element) for element in elements) + b"]"


def _as_json(column: TableColumn, value: bytes) -> bytes:
    """An array in a column of JSON: INT64 elements become numbers, JSON elements become documents."""
    if column.kind.encoded_like is ColumnKind.INT64:
        return value.replace(b'"', b"")
    if column.kind is not ColumnKind.JSON:
        return value
    texts = msgspec.json.decode(value, type=list[str | None])
    return f"[{','.join('null' if text is None else text for text in texts)}]".encode()


def _boolean(_column: TableColumn, value: bytes) -> bytes:
    msgspec.json.decode(value, type=bool)
    return value


def _long(_column: TableColumn, value: bytes) -> bytes:
    if not _WHOLE.fullmatch(value) or not -(2**63) <= int(value.strip(b'"')) < 2**63:
        raise ValueError
    return b'"%b"' % value.strip(b'"')


def _real(_column: TableColumn, value: bytes) -> bytes:
    if value not in _NOT_FINITE:
        msgspec.json.decode(value, type=float)
    return value


def _float(column: TableColumn, value: bytes) -> bytes:
    """The double that equals a FLOAT32."""
    value = _real(column, value)
    return value if value in _NOT_FINITE else repr(float(np.float32(value.decode()))).encode()


def _decimal(_column: TableColumn, value: bytes) -> bytes:
    if not _NUMERIC.fullmatch(value):
        raise ValueError
    return value


def _number(column: TableColumn, value: bytes) -> bytes:
    value = _text(column, value)
    if column.field.type == "BIGNUMERIC" and not _BIGNUMERIC.fullmatch(orjson.loads(value)):
        raise RejectedRowError(unfit_number(column))
    return value


def _string(_column: TableColumn, value: bytes) -> bytes:
    if not value.startswith(b'"'):
        raise ValueError
    return value


def _bytes(_column: TableColumn, value: bytes) -> bytes:
    a2b_base64(orjson.loads(value), strict_mode=True)
    return value


def _date(_column: TableColumn, value: bytes) -> bytes:
    if not _DAY.fullmatch(value):
        raise ValueError
    date.fromisoformat(orjson.loads(value))
    return value


def _json(_column: TableColumn, value: bytes) -> bytes:
    return _document(orjson.loads(value).encode() if value.startswith(b'"') else value)


def _document(text: bytes) -> bytes:
    """A JSON document as text, which the MERGE parses: a load would read its null as NULL."""
    msgspec.json.decode(text)
    json.loads(text, parse_int=_check_exact, parse_float=_check_exact)
    return orjson.dumps(text.decode())


def _check_exact(digits: str) -> None:
    """Rejects a number that PARSE_JSON would have to round, which would end the MERGE of all rows."""
    is_whole = digits.lstrip("-").isdecimal() and -(2**63) <= int(digits) < 2**64
    if not is_whole and Decimal(digits) != Decimal(repr(float(digits))):
        raise ValueError


def _timestamp(column: TableColumn, value: bytes) -> bytes:
    """Truncated to microseconds, BigQuery's precision."""
    nanoseconds = parse(orjson.loads(value))
    if column.field.required and nanoseconds % MICROSECOND:
        raise RejectedRowError(too_fine_key(column))
    return orjson.dumps(format_rfc3339(nanoseconds // MICROSECOND * MICROSECOND))


def _text(_column: TableColumn, value: bytes) -> bytes:
    return value if value.startswith(b'"') else orjson.dumps(value.decode())


_WHOLE, _NUMERIC = re.compile(rb'-?[0-9]+|"-?[0-9]+"'), re.compile(f'"{DIGITS["NUMERIC"]}"'.encode())
_BIGNUMERIC = re.compile(DIGITS["BIGNUMERIC"])
_DAY = re.compile(rb'"[0-9]{4}-[0-9]{2}-[0-9]{2}"')
_NOT_FINITE = (b'"NaN"', b'"Infinity"', b'"-Infinity"')
LOADED_VALUES: Mapping[ColumnKind, Callable[[TableColumn, bytes], bytes]] = {
    ColumnKind.BOOL: _boolean,
    ColumnKind.INT64: _long,
    ColumnKind.FLOAT32: _float,
    ColumnKind.FLOAT64: _real,
    ColumnKind.NUMERIC: _decimal,
    ColumnKind.PG_NUMERIC: _number,
    ColumnKind.STRING: _string,
    ColumnKind.BYTES: _bytes,
    ColumnKind.DATE: _date,
    ColumnKind.TIMESTAMP: _timestamp,
    ColumnKind.JSON: _json,
    ColumnKind.UUID: _string,
    ColumnKind.INTERVAL: _string,
    ColumnKind.ENUM: _long,
    ColumnKind.PROTO: _bytes,
    ColumnKind.UNKNOWN: _text,
}
"""Converts a value of Spanner's JSON to that of a load job."""
