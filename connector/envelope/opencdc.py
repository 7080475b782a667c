"""Events as OpenCDC records (https://conduit.io/docs/using/opencdc-record), made of the envelope's rows. Pure.

All five keys are always there, for Conduit's reader fails where one is missing. Key and payload are structured data:
what was not captured is absent, NULL is null. Numbers are doubles to a reader of JSON, and in the protobuf message; so
a number that a double cannot give back is written as a string of its digits: INT64 beyond 2^53, and numbers in JSON.
Everything else is written as in Datastream's envelope (:mod:`connector.envelope.events`).
"""

import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.position import documents
from connector.core.schemas import TableSchema
from connector.envelope.events import json_object
from connector.errors import EventError

EXACT = 2**53
"""A double holds every integer up to here."""

OPERATIONS: Mapping[str, str] = {"INSERT": "create", "UPDATE": "update", "DELETE": "delete"}
"""By mod type; rows of a backfill are ``snapshot``."""

Converter = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class OpenCdcRecord:
    """A record; ``position`` is the bytes of a document, which JSON holds in base64."""

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
        """One line, with a line feed at its end."""
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
        schema_of: the schema that a schema key names.
    """

    def __init__(self, schema_of: Callable[[str], TableSchema]) -> None:
        self._schema_of = schema_of
        self._converters: dict[str, dict[str, Converter]] = {}

    def lines(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """One JSON object a row, with a line feed at its end."""
        for record in self.records(batch):
            yield record.to_json()

    def records(self, batch: pa.RecordBatch) -> Iterator[OpenCdcRecord]:
        """One record a row.

        Raises:
            EventError: a mod type that OpenCDC has no operation for, a payload that is not a JSON object, or a value
                that is not of its type.
        """
        source = batch.column("source_metadata")
        keys = pc.struct_field(source, "primary_keys").to_pylist()
        for position, mod_type, snapshot, metadata, schema_key, key, payload, before in zip(
            documents(batch),
            pc.struct_field(source, "mod_type").to_pylist(),
            pc.struct_field(source, "snapshot").to_pylist(),
            _metadata(batch, keys),
            batch.column("schema_key").to_pylist(),
            keys,
            batch.column("payload").to_pylist(),
            batch.column("before").to_pylist(),
            strict=True,
        ):
            operation = "snapshot" if snapshot else OPERATIONS.get(mod_type)
            if operation is None:
                raise EventError(
                    f"OpenCDC has no operation for mod type {mod_type}",
                    hint="The envelope datastream names it as it is.",
                )
            values = self.values(payload, schema_key)
            yield OpenCdcRecord(
                position,
                operation,
                metadata,
                {name: values[name] for name in key if name in values},
                None if before is None or operation == "create" else self.values(before, schema_key),
                None if operation == "delete" else values,
            )

    def values(self, text: str, schema_key: str) -> dict[str, object]:
        """A JSON object of Spanner's values, converted.

        Raises:
            EventError: it is not a JSON object, or a value is not of its type.
        """
        converters = self._of(schema_key)
        row = json_object(text)
        for name, value in row.items():
            if value is not None:
                convert = converters.get(name, _exact)
                if convert is not _as_it_is:
                    row[name] = convert(value)
        return row

    def _of(self, schema_key: str) -> dict[str, Converter]:
        known = self._converters.get(schema_key)
        if known is None:
            known = {column.name: converter(column.type) for column in self._schema_of(schema_key).columns}
            self._converters[schema_key] = known
        return known


def _metadata(batch: pa.RecordBatch, keys: list[list[str]]) -> Iterator[dict[str, str]]:
    """Each row's metadata; a field that is null is left out."""
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
    """Names of columns as JSON arrays; few are different."""
    known: dict[tuple[str, ...], str] = {}
    out: list[str | None] = []
    for names in map(tuple, keys):
        if names not in known:
            known[names] = orjson.dumps(names).decode()
        out.append(known[names])
    return out


def converter(type_json: str) -> Converter:
    """The function that turns values of a Spanner type into OpenCDC's."""
    column_type = SpannerType.parse(type_json)
    convert = CONVERTERS[column_type.kind]
    if convert is _as_it_is or not column_type.is_array:
        return convert

    def array(value: object) -> object:
        return [None if item is None else convert(item) for item in value] if isinstance(value, list) else value

    return array


def _as_it_is(value: object) -> object:
    return value


def _integer(value: object) -> object:
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:  # its text holds the value
        raise EventError("a value of an integer type is not an integer") from None
    return _exact(number)


def _exact(value: object) -> object:
    """A JSON value with the integers that no double holds as strings of their digits."""
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
    except ValueError:  # its text holds the value
        raise EventError("a value of type JSON is not JSON") from None
    return _whole(node) if _SURROGATE.search(value) else node


def _whole(value: object) -> object:
    """A JSON value with what UTF-8 cannot hold, half of a surrogate pair, as its escape in JSON's text."""
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
    except ArithmeticError:  # an exponent beyond all decimals
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
"""Of an unknown type only the integers change that a double cannot hold."""
