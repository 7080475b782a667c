"""Writes events as OpenCDC records (https://conduit.io/docs/using/opencdc-record). Pure.

A record always has all five fields, because Conduit's reader fails where one is missing. Key and payload are structured
data: a column that was not captured is absent, NULL is null. Readers of JSON and of the protobuf message parse numbers
as doubles. So a number that a double cannot represent is written as a string of its digits: INT64 beyond 2^53, and
numbers in JSON. All other values are written as in Datastream's envelope (:mod:`connector.envelope.events`).
"""

import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.position import documents
from connector.core.schemas import TableSchema
from connector.envelope.events import Converter, json_object, of_elements
from connector.envelope.failing_rows import of_column, of_row
from connector.errors import EventError

EXACT = 2**53
"""A double represents every integer up to this one."""

OPERATIONS: Mapping[str, str] = {"INSERT": "create", "UPDATE": "update", "DELETE": "delete"}
"""By mod type; rows of a backfill or a repair are ``snapshot``."""


@dataclass(frozen=True, slots=True)
class OpenCdcRecord:
    """An OpenCDC record; ``position`` holds the bytes of a position document, which are base64 in JSON."""

    position: bytes
    operation: str
    metadata: dict[str, str]
    key: dict[str, object]
    before: dict[str, object] | None
    after: dict[str, object] | None

    @property
    def position_text(self) -> str:
        """The position in base64."""
        return b64encode(self.position).decode()

    def to_json(self) -> bytes:
        """The record as one line of JSON, with a line feed at its end."""
        return orjson.dumps(
            {
                "position": self.position_text,
                "operation": self.operation,
                "metadata": self.metadata,
                "key": self.key,
                "payload": {"before": self.before, "after": self.after},
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )


class OpenCdcWriter:
    """Writes events of the envelope's columns as OpenCDC records.

    Args:
        schema_of: returns the schema with a schema key.
        converter_of: returns the converter of a type; by default :func:`converter`.
    """

    def __init__(
        self, schema_of: Callable[[str], TableSchema], converter_of: Callable[[str], Converter] | None = None
    ) -> None:
        self._schema_of = schema_of
        self._converter_of = converter_of or converter
        self._converters_of = cache(self._converters)

    def lines(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """One JSON object for each row, each with a line feed at its end."""
        for record in self.records(batch):
            yield record.to_json()

    def records(self, batch: pa.RecordBatch) -> Iterator[OpenCdcRecord]:
        """One record for each row.

        Raises:
            EventError: OpenCDC has no operation for a mod type, a payload is not a JSON object, or a value does not
                match its type; with its table, column, commit and transaction.
        """
        return self._records(batch, self.values)

    def captured(self, batch: pa.RecordBatch) -> Iterator[OpenCdcRecord]:
        """As :meth:`records`, with values as Spanner's JSON has them: :meth:`converted` converts those of a row."""
        return self._records(batch, lambda text, _: json_object(text))

    def _records(
        self, batch: pa.RecordBatch, values_of: Callable[[str, str], dict[str, object]]
    ) -> Iterator[OpenCdcRecord]:
        source = batch.column("source_metadata")
        keys = pc.struct_field(source, "primary_keys").to_pylist()
        for row, (position, mod_type, snapshot, metadata, schema_key, key, payload, before) in enumerate(
            zip(
                documents(batch),
                pc.struct_field(source, "mod_type").to_pylist(),
                pc.struct_field(source, "snapshot").to_pylist(),
                _metadata(batch, keys),
                batch.column("schema_key").to_pylist(),
                keys,
                batch.column("payload").to_pylist(),
                batch.column("before").to_pylist(),
                strict=True,
            )
        ):
            try:
                operation = "snapshot" if snapshot and mod_type == "INSERT" else _operation(mod_type)
                values = values_of(payload, schema_key)
                old = None if before is None or operation == "create" else values_of(before, schema_key)
            except EventError as error:
                raise of_row(error, batch, row) from None
            yield OpenCdcRecord(
                position,
                operation,
                metadata,
                {name: values[name] for name in key if name in values},
                old,
                None if operation == "delete" else values,
            )

    def values(self, text: str, schema_key: str) -> dict[str, object]:
        """The columns of a payload or of old values, converted to OpenCDC's values.

        Raises:
            EventError: the text is not a JSON object, or a value does not match its type; with its column.
        """
        return self.converted(json_object(text), schema_key)

    def converted(self, row: dict[str, object], schema_key: str) -> dict[str, object]:
        """The row with its values converted in place.

        Raises:
            EventError: a value does not match its type; with its column.
        """
        converters = self._converters_of(schema_key)
        name = ""
        try:
            for name, value in row.items():
                if value is not None:
                    convert = converters.get(name, _exact)
                    if convert is not _as_it_is:
                        row[name] = convert(value)
        except EventError as error:
            raise of_column(error, name) from None
        return row

    def _converters(self, schema_key: str) -> dict[str, Converter]:
        return {column.name: self._converter_of(column.type) for column in self._schema_of(schema_key).columns}


def _operation(mod_type: str) -> str:
    found = OPERATIONS.get(mod_type)
    if found is None:
        raise EventError(
            f"OpenCDC has no operation for mod type {mod_type}",
            hint="Use the envelope datastream, which accepts every mod type.",
        )
    return found


def _metadata(batch: pa.RecordBatch, keys: list[list[str]]) -> Iterator[dict[str, str]]:
    """The metadata of each row; a field that is null is omitted."""
    source = batch.column("source_metadata")
    nanos = pc.list_element(batch.column("sort_keys"), 1)
    read_at = pc.multiply(batch.column("read_timestamp").cast(pa.int64()), 1000)
    columns = {
        "opencdc.createdAt": nanos,
        "opencdc.readAt": read_at,
        "opencdc.collection": batch.column("object"),
        **{f"spanner.{name}": batch.column(name) for name in ("stream_name", "read_method", "schema_key", "uuid")},
        **{f"spanner.{field.name}": pc.struct_field(source, field.name) for field in source.type},
    }
    texts: list[list[str | None]] = [["v1"] * batch.num_rows]
    for name, column in columns.items():
        texts.append(_key_texts(keys) if name == "spanner.primary_keys" else column.cast(pa.string()).to_pylist())
    names = ("opencdc.version", *columns)
    for row in zip(*texts, strict=True):
        yield {name: text for name, text in zip(names, row, strict=True) if text is not None}


def _key_texts(keys: list[list[str]]) -> list[str | None]:
    """Lists of column names as JSON arrays; few lists differ, so each is encoded once."""
    named = list(map(tuple, keys))
    texts = {names: orjson.dumps(names).decode() for names in set(named)}
    return [texts[names] for names in named]


def converter(type_json: str) -> Converter:
    """The function that turns values of a Spanner type into OpenCDC's."""
    column_type = SpannerType.parse(type_json)
    convert = CONVERTERS[column_type.kind]
    return convert if convert is _as_it_is or not column_type.is_array else of_elements(convert)


def _as_it_is(value: object) -> object:
    return value


def _integer(value: object) -> object:
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:  # the message of the cause contains the value
        raise EventError("a value of an integer type is not an integer") from None
    return _exact(number)


def _exact(value: object) -> object:
    """A JSON value in which integers that a double cannot represent are strings of their digits."""
    if isinstance(value, int):
        return value if -EXACT <= value <= EXACT else str(value)
    if isinstance(value, list):
        return [_exact(item) for item in value]
    if isinstance(value, dict):
        return {name: _exact(item) for name, item in value.items()}
    return value


def _nested_json(value: object) -> object:
    if not isinstance(value, str):
        return _exact(value)
    try:
        node = _JSON.decode(value)
    except ValueError:  # the message of the cause contains the value
        raise EventError("a value of type JSON is not JSON") from None
    return _whole(node) if _SURROGATE.search(value) else node


def _whole(value: object) -> object:
    """A JSON value in which lone surrogates, which UTF-8 cannot represent, are replaced by their JSON escapes."""
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case list():
            return [_whole(item) for item in value]
        case dict():
            return {_whole(name): _whole(item) for name, item in value.items()}
        case _:
            return value


def _json_integer(text: str) -> int | str:
    if len(text) > 17:
        return text
    number = int(text)
    return number if -EXACT <= number <= EXACT else text


def _json_real(text: str) -> float | str:
    number = float(text)
    if not math.isfinite(number):
        return text
    try:
        return number if Decimal(text) == Decimal(repr(number)) else text
    except ArithmeticError:  # the exponent is too large for Decimal
        return text


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_JSON = json.JSONDecoder(parse_int=_json_integer, parse_float=_json_real, parse_constant=str)

CONVERTERS: Mapping[ColumnKind, Converter] = {
    ColumnKind.BOOL: _as_it_is,
    ColumnKind.INT64: _integer,
    ColumnKind.FLOAT32: _as_it_is,
    ColumnKind.FLOAT64: _as_it_is,
    ColumnKind.NUMERIC: _as_it_is,
    ColumnKind.PG_NUMERIC: _as_it_is,
    ColumnKind.STRING: _as_it_is,
    ColumnKind.BYTES: _as_it_is,
    ColumnKind.DATE: _as_it_is,
    ColumnKind.TIMESTAMP: _as_it_is,
    ColumnKind.JSON: _nested_json,
    ColumnKind.UUID: _as_it_is,
    ColumnKind.INTERVAL: _as_it_is,
    ColumnKind.ENUM: _integer,
    ColumnKind.PROTO: _as_it_is,
    ColumnKind.UNKNOWN: _exact,
}
"""Converts the values of a kind; of an unknown type, only integers that a double cannot represent change."""
