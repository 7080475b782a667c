"""Folds a table's changes, in their order, into what has become of each row: what a load and a MERGE bring.

Of a row that changed several times one line is left. An UPDATE that names only some columns changes only those, so
every value capture type will do; a column that no change named is marked as not present, for it is not NULL. What was
before an INSERT or a DELETE counts no more.
"""

import json
import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import msgspec
import numpy as np
import orjson
import pyarrow as pa

from connector.core.timestamps import format_rfc3339, parse
from connector.envelope.avro_schema import Kind
from spark_sink.bigquery import reasons as bigquery_reasons
from spark_sink.bigquery.bounds import bound_of, bounded
from spark_sink.bigquery.table import METADATA, BigQueryTable, Column, Field

PRESENT, DELETED, REPLACED = "_spanner_present", "_spanner_deleted", "_spanner_replaced"
"""Of the columns that a line has beside the table's: a digit for each column, 1 where it is present; whether the row is
gone; whether it is new, so that what is not present is NULL. A table that has such a column itself: :func:`added`."""

LONGEST_STATEMENT = 1_000_000
"""Characters of a statement that BigQuery takes (https://cloud.google.com/bigquery/quotas#query_jobs: 1 MB)."""

_ALIASES = ("t", "s")
"""Of the target and of the staged lines in a statement."""

_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL = msgspec.Raw(b"null")
_MICROSECOND = 1000


@dataclass(slots=True)
class _Row:
    """What has become of a row: the values that changes named, and the last change."""

    values: dict[str, msgspec.Raw]
    deleted: bool
    replaced: bool
    last: tuple[str, int, str]


class Fold:
    """The rows of one table.

    Args:
        table: the table.
    """

    def __init__(self, table: BigQueryTable) -> None:
        self._table = table
        self._columns = {column.name: column for column in table.columns}
        self._keys = [column.name for column in table.columns if column.is_key]
        self._rows: dict[tuple[object, ...], _Row] = {}
        self._present, self._deleted, self._replaced = added(table)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def fields(self) -> list[Field]:
        """The columns of a line; a row that is gone has only its key. JSON is loaded as text."""
        own = [
            Field(field.name, "STRING" if field.type == "JSON" else field.type, field.repeated, fields=field.fields)
            for field in self._table.fields
        ]
        return [*own, Field(self._present, "STRING"), Field(self._deleted, "BOOL"), Field(self._replaced, "BOOL")]

    def add(self, rows: pa.RecordBatch) -> list[tuple[int, str]]:
        """Adds events of the table, in commit order; returns the index of each that does not fit, and why."""
        refused = []
        metadata = rows.column("source_metadata")
        mod_types = metadata.field("mod_type").to_pylist()
        moments = rows.column("source_timestamp").cast(pa.int64()).to_pylist()
        uuids, numbers = rows.column("uuid").to_pylist(), rows.column("change_sequence_number").to_pylist()
        for index, payload in enumerate(rows.column("payload").to_pylist()):
            try:
                values = self._values(payload, mod_types[index])
            except _MisfitError as error:
                refused.append((index, str(error)))
                continue
            self._change(values, mod_types[index], (uuids[index], moments[index] // _MICROSECOND, numbers[index]))
        return refused

    def lines(self) -> bytes:
        """The rows as lines of JSON."""
        return b"\n".join(self._line(row) for row in self._rows.values())

    def bounds(self) -> str:
        """What holds for the keys of these rows, as a condition on the target without other tables' columns."""
        target, _ = _free(self._table, *_ALIASES)
        columns = bounded(self._table)
        return " AND ".join(
            bound for name in columns if (bound := bound_of(self._columns[name], self._values_of(name), target))
        )

    def _values_of(self, name: str) -> set[bytes]:
        return {bytes(row.values[name]) for row in self._rows.values()}

    def _values(self, payload: str, mod_type: str) -> dict[str, msgspec.Raw]:
        try:
            found = _DECODER.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise _MisfitError("the row is no JSON object") from None
        named = self._keys if mod_type == "DELETE" else dict.fromkeys((*self._keys, *found))
        values = {}
        for name in named:
            column = self._columns.get(name)
            if column is None:
                raise _MisfitError(f"column {name} is not known of table {self._table.source}")
            values[name] = _loaded(column, found.get(name, _NULL))
        return values

    def _change(self, values: dict[str, msgspec.Raw], mod_type: str, last: tuple[str, int, str]) -> None:
        key = tuple(orjson.loads(bytes(values[name])) for name in self._keys)
        known = self._rows.get(key)
        if mod_type == "UPDATE" and (known is None or not known.deleted):
            before = known.values if known else {}
            self._rows[key] = _Row({**before, **values}, False, known.replaced if known else False, last)
        else:
            self._rows[key] = _Row(values, mod_type == "DELETE", mod_type != "DELETE", last)

    def _line(self, row: _Row) -> bytes:
        uuid, moment, number = row.last
        line: dict[str, object] = {
            column.field.name: orjson.Fragment(bytes(row.values[column.name]))
            for column in self._table.columns
            if column.name in row.values
        }
        line[METADATA] = {"uuid": uuid, "source_timestamp": moment, "change_sequence_number": number}
        line[self._present] = "".join("01"[column.name in row.values] for column in self._table.columns)
        line[self._deleted], line[self._replaced] = row.deleted, row.replaced
        return orjson.dumps(line)


def added(table: BigQueryTable) -> tuple[str, ...]:
    """:data:`PRESENT`, :data:`DELETED` and :data:`REPLACED`, or names alike that no column of a table has."""
    return _free(table, PRESENT, DELETED, REPLACED)


def _free(table: BigQueryTable, *names: str) -> tuple[str, ...]:
    """Names with as many underscores after them as it takes until no column is called so."""
    taken = {field.name.lower() for field in table.fields}
    while not taken.isdisjoint(names):
        names = tuple(f"{name}_" for name in names)
    return names


def late_statement(table: BigQueryTable, into: str, staging: str) -> str:
    """The ``uuid`` of each line in table ``staging`` that comes after later changes of its row in table ``into``."""
    t, s = _free(table, *_ALIASES)
    return (
        f"SELECT {s}.{METADATA}.uuid FROM `{staging}` {s} JOIN `{into}` {t} ON {_same_row(table, t, s)}"
        f" WHERE {t}.{METADATA}.change_sequence_number > {s}.{METADATA}.change_sequence_number"
    )


def _same_row(table: BigQueryTable, t: str, s: str) -> str:
    return " AND ".join(f"{t}.`{name}` = {s}.`{name}`" for name in table.primary_key)


def merge_statement(table: BigQueryTable, into: str, staging: str, bounds: str = "") -> str:
    """Brings the lines in table ``staging`` into table ``into``; a line that is not newer than its row does nothing.

    ``bounds`` holds for every row that a line can meet, and saves BigQuery the others (:meth:`Fold.bounds`).
    """
    t, s = _free(table, *_ALIASES)
    present, deleted, replaced = added(table)
    same = _same_row(table, t, s)
    if bounds:
        same = f"{same} AND {bounds}"
    newer = f"{s}.{METADATA}.change_sequence_number > COALESCE({t}.{METADATA}.change_sequence_number, '')"
    changed = [
        f"`{column.field.name}` = IF({s}.{replaced} OR SUBSTR({s}.{present}, {place}, 1) = '1',"
        f" {s}.`{column.field.name}`, {t}.`{column.field.name}`)"
        for place, column in enumerate(table.columns, 1)
        if not column.is_key
    ]
    changed.append(f"{METADATA} = {s}.{METADATA}")
    names = ", ".join(f"`{field.name}`" for field in table.fields)
    values = ", ".join(f"{s}.`{field.name}`" for field in table.fields)
    documents = [_parsed(column.field) for column in table.columns if column.field.type == "JSON"]
    lines = f"(SELECT * REPLACE ({', '.join(documents)}) FROM `{staging}`)" if documents else f"`{staging}`"
    return (
        f"MERGE `{into}` {t} USING {lines} {s} ON {same}"
        f" WHEN MATCHED AND {newer} AND {s}.{deleted} THEN DELETE"
        f" WHEN MATCHED AND {newer} THEN UPDATE SET {', '.join(changed)}"
        f" WHEN NOT MATCHED AND NOT {s}.{deleted} THEN INSERT ({names}) VALUES ({values})"
    )


def too_long(table: BigQueryTable, project: str) -> str | None:
    """Why a table has too many columns, or too long names of them, to be merged into; None if it has not."""
    path = f"{project}.{table.dataset}"
    size = len(merge_statement(table, f"{path}.{table.name}", f"{path}.{'x' * _BESIDE}"))
    if size <= LONGEST_STATEMENT:
        return None
    return (
        f"the MERGE of its {len(table.columns)} columns would have {size:,} characters, and BigQuery takes"
        f" {LONGEST_STATEMENT:,}: take mode merge or append-only, or leave the table out"
    )


_BESIDE = 40_000
"""Characters of a staging table's name and of the bounds of two keys, and more."""


def _parsed(field: Field) -> str:
    """A column of JSON, out of its texts."""
    name = f"`{field.name}`"
    if not field.repeated:
        return f"PARSE_JSON({name}) AS {name}"
    return f"ARRAY(SELECT PARSE_JSON(e) FROM UNNEST({name}) e WITH OFFSET o ORDER BY o) AS {name}"


class _MisfitError(Exception):
    """A row that BigQuery's table cannot hold; it names the column, never the value."""


def _loaded(column: Column, value: msgspec.Raw) -> msgspec.Raw:
    """A value as a load job of JSON takes it; one that it does not take would end the job, and with it all rows'.

    Raises:
        _MisfitError: there is no such value in BigQuery.
    """
    text = bytes(value)
    if text == b"null":
        if column.field.required:
            raise _MisfitError(bigquery_reasons.no_key(column))
        return msgspec.Raw(b"[]") if column.field.repeated else value
    try:
        return msgspec.Raw(_read(column, text).replace(b"\n", b" ").replace(b"\r", b" "))  # a line is one line
    except (ValueError, TypeError):  # the cause may tell the value
        raise _MisfitError(f"column {column.name} holds a value that does not fit its type") from None


def _read(column: Column, value: bytes) -> bytes:
    if column.field.type == "JSON" and column.kind is not Kind.JSON:
        return _document(_as_json(column, value))
    read = _READ[column.kind]
    if not column.field.repeated:
        return read(column, value)
    elements = [bytes(element) for element in msgspec.json.decode(value, type=list[msgspec.Raw])]
    if b"null" in elements:
        raise _MisfitError(bigquery_reasons.null_in_array(column))
    return b"[" + b",".join(read(column, element) for element in elements) + b"]"


def _as_json(column: Column, value: bytes) -> bytes:
    """An array in a column of JSON: one of whole numbers holds numbers, one of JSON holds texts of it."""
    if column.kind is Kind.ARRAY_OF_LONG:
        return value.replace(b'"', b"")
    if column.kind is not Kind.ARRAY_OF_JSON:
        return value
    texts = msgspec.json.decode(value, type=list[str | None])
    return f"[{','.join('null' if text is None else text for text in texts)}]".encode()


def _boolean(_column: Column, value: bytes) -> bytes:
    msgspec.json.decode(value, type=bool)
    return value


def _long(_column: Column, value: bytes) -> bytes:
    if not _WHOLE.fullmatch(value) or not -(2**63) <= int(value.strip(b'"')) < 2**63:
        raise ValueError
    return b'"%b"' % value.strip(b'"')


def _real(_column: Column, value: bytes) -> bytes:
    if value not in _NO_NUMBERS:
        msgspec.json.decode(value, type=float)
    return value


def _float(column: Column, value: bytes) -> bytes:
    """The double that a FLOAT32 is."""
    value = _real(column, value)
    return value if value in _NO_NUMBERS else repr(float(np.float32(value.decode()))).encode()


def _decimal(_column: Column, value: bytes) -> bytes:
    if not _NUMERIC.fullmatch(value):
        raise ValueError
    return value


def _number(column: Column, value: bytes) -> bytes:
    value = _text(column, value)
    if column.field.type == "BIGNUMERIC":
        try:
            pa.scalar(orjson.loads(value)).cast(bigquery_reasons.DECIMALS["BIGNUMERIC"])
        except pa.ArrowInvalid:
            raise _MisfitError(bigquery_reasons.unfit_number(column)) from None
    return value


def _string(_column: Column, value: bytes) -> bytes:
    if not value.startswith(b'"'):
        raise ValueError
    return value


def _bytes(_column: Column, value: bytes) -> bytes:
    a2b_base64(orjson.loads(value), strict_mode=True)
    return value


def _date(_column: Column, value: bytes) -> bytes:
    if not _DAY.fullmatch(value):
        raise ValueError
    date.fromisoformat(orjson.loads(value))
    return value


def _json(_column: Column, value: bytes) -> bytes:
    return _document(orjson.loads(value).encode() if value.startswith(b'"') else value)


def _document(text: bytes) -> bytes:
    """A JSON document as a text, out of which the MERGE makes JSON: a load would take its null for NULL."""
    msgspec.json.decode(text)
    json.loads(text, parse_int=_check_exact, parse_float=_check_exact)
    return orjson.dumps(text.decode())


def _check_exact(digits: str) -> None:
    """Refuses a number that PARSE_JSON would have to round: it ends the MERGE, and with it all rows'."""
    is_whole = digits.lstrip("-").isdecimal() and -(2**63) <= int(digits) < 2**64
    if not is_whole and Decimal(digits) != Decimal(repr(float(digits))):
        raise ValueError


def _timestamp(column: Column, value: bytes) -> bytes:
    """Cut to microseconds, which is what BigQuery has."""
    nanoseconds = parse(orjson.loads(value))
    if column.field.required and nanoseconds % _MICROSECOND:
        raise _MisfitError(bigquery_reasons.too_fine_key(column))
    return orjson.dumps(format_rfc3339(nanoseconds // _MICROSECOND * _MICROSECOND))


def _text(_column: Column, value: bytes) -> bytes:
    return value if value.startswith(b'"') else orjson.dumps(value.decode())


_WHOLE, _NUMERIC = re.compile(rb'-?[0-9]+|"-?[0-9]+"'), re.compile(rb'"-?[0-9]{1,29}(\.[0-9]{1,9})?"')
_DAY = re.compile(rb'"[0-9]{4}-[0-9]{2}-[0-9]{2}"')
_NO_NUMBERS = (b'"NaN"', b'"Infinity"', b'"-Infinity"')
_READ: Mapping[Kind, Callable[[Column, bytes], bytes]] = {
    Kind.BOOLEAN: _boolean,
    Kind.LONG: _long,
    Kind.FLOAT: _float,
    Kind.DOUBLE: _real,
    Kind.DECIMAL: _decimal,
    Kind.NUMBER: _number,
    Kind.STRING: _string,
    Kind.BYTES: _bytes,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp,
    Kind.JSON: _json,
    Kind.UNKNOWN: _text,
}
