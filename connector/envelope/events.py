"""Writes events as Datastream's JSON lines: one object for each mod, values in Datastream's unified types.

The payload's values come in Spanner's own JSON encoding (https://cloud.google.com/spanner/docs/reference/rpc/
google.spanner.v1#typecode), where INT64 is a string and JSON a string that holds JSON. The type of the column in
the event's schema decides how a value is converted; the value itself never does.

Rows are written a column at a time. The payloads of a batch are parsed together. Only the values that change are
converted; all others are copied as bytes. If that is not possible, each payload is parsed alone
(:meth:`EventWriter.payload`), with the same result.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.byte_columns import RowBytes, bytes_of, ends_of, joined
from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema
from connector.core.text_columns import json_texts, rfc3339_texts
from connector.envelope.failing_rows import of_batch, of_column
from connector.envelope.source_metadata import REPEATED, written_columns
from connector.errors import EventError

Converter = Callable[[object], object]


def _integer(value: object) -> object:
    try:
        return int(value) if isinstance(value, str) else value
    except ValueError:  # the message of the cause contains the value
        raise EventError("a value of an integer type is not an integer") from None


_LONGEST_INTEGER = 20
"""Characters of the longest integer that orjson reads as one."""


def json_object(text: str) -> dict[str, object]:
    """Parses a payload.

    Raises:
        EventError: the text is not a JSON object.
    """
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError:
        row = None
    if not isinstance(row, dict):
        raise EventError("the payload is not a JSON object")
    if "-0," in text or "-0}" in text or "-0]" in text:  # an integer without a sign to orjson: FLOAT64's -0
        signed: dict[str, object] = json.loads(text, parse_int=_signed)
        return signed
    return row


def _signed(digits: str) -> float:
    """A number as orjson reads it, except that a zero keeps its sign."""
    if digits == "-0":
        return -0.0
    number = int(digits) if len(digits) <= _LONGEST_INTEGER else 2**64
    return number if -(2**63) <= number < 2**64 else float(digits)


def _nested_json(value: object) -> object:
    return orjson.Fragment(bytes(_raw(value))) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class EventValue:
    """The conversion of the values of one kind to Datastream's.

    Attributes:
        convert: turns a value of Spanner's JSON encoding into Datastream's; None where they are the same.
        parsed: the Python type that msgspec parses the value to, so that many rows are converted at once.
    """

    convert: Converter | None
    parsed: object


_SAME = EventValue(None, None)
_INTEGER = EventValue(_integer, int)

EVENT_VALUES: Mapping[ColumnKind, EventValue] = {
    ColumnKind.BOOL: _SAME,
    ColumnKind.INT64: _INTEGER,
    ColumnKind.FLOAT32: _SAME,
    ColumnKind.FLOAT64: _SAME,
    ColumnKind.NUMERIC: _SAME,
    ColumnKind.PG_NUMERIC: _SAME,
    ColumnKind.STRING: _SAME,
    ColumnKind.BYTES: _SAME,
    ColumnKind.DATE: _SAME,
    ColumnKind.TIMESTAMP: _SAME,
    ColumnKind.JSON: EventValue(_nested_json, str),
    ColumnKind.UUID: _SAME,
    ColumnKind.INTERVAL: _SAME,
    ColumnKind.ENUM: _INTEGER,
    ColumnKind.PROTO: _SAME,
    ColumnKind.UNKNOWN: _SAME,
}


def converter(type_json: str) -> Converter | None:
    """The function that turns values of a Spanner type into Datastream's; None where they are the same."""
    column_type = SpannerType.parse(type_json)
    convert = EVENT_VALUES[column_type.kind].convert
    return convert if convert is None or not column_type.is_array else of_elements(convert)


def of_elements(convert: Converter) -> Converter:
    """The function that converts each element of a list but NULL."""

    def array(value: object) -> object:
        return [None if item is None else convert(item) for item in value] if isinstance(value, list) else value

    return array


class EventWriter:
    """Writes events of the envelope's columns as JSON lines.

    Args:
        schema_of: returns the schema with a schema key.
        sort_fields: whether the source metadata ends with the fields that the Dataflow templates sort by.
        completes: whether it ends with the field that says whether a row is complete.
    """

    def __init__(
        self, schema_of: Callable[[str], TableSchema], *, sort_fields: bool = True, completes: bool = False
    ) -> None:
        self._schema_of = schema_of
        self._converters_of = cache(self._converters)
        self._payloads_of = cache(lambda schema_key: _Payloads(schema_of(schema_key)))
        self._sort_fields = sort_fields
        self._completes = completes

    def payload(self, text: str, schema_key: str) -> bytes:
        """The payload's JSON object with its values as Datastream writes them; absent columns stay absent.

        Raises:
            EventError: the text is not a JSON object, or a value does not match its type; with its column.
        """
        row = json_object(text)
        name = ""
        try:
            for name, convert in self._converters_of(schema_key).items():
                value = row.get(name)
                if value is not None:
                    row[name] = convert(value)
        except EventError as error:
            raise of_column(error, name) from None
        return orjson.dumps(row)

    def lines(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """One JSON object for each row, each with a line feed at its end."""
        rows = self.encoded(batch)
        data, first = bytes_of(rows), 0
        for end in ends_of(rows).tolist():
            yield bytes(data[first:end])
            first = end

    def encoded(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """The same lines as :meth:`lines`, as an Arrow column.

        Raises:
            EventError: a value does not match its type; with its table, column, commit and transaction.
        """
        rows = RowBytes(batch.num_rows)
        for opening, name in ((b"{", "stream_name"), (b",", "read_method"), (b",", "object"), (b",", "schema_key")):
            rows.literal(opening + _named(name))
            rows.column(json_texts(batch.column(name)))
        rows.literal(b"," + _named("uuid"))
        rows.column(json_texts(batch.column("uuid")))
        rows.literal(b"," + _named("read_timestamp") + b'"')
        rows.column(rfc3339_texts(batch.column("read_timestamp").cast(pa.int64()).to_numpy() * 1000))
        rows.literal(b'",' + _named("source_timestamp"))
        rows.column(json_texts(pc.struct_field(batch.column("source_metadata"), "commit_timestamp")))
        keys = batch.column("sort_keys")
        for number, opening in enumerate((b"," + _named("sort_keys") + b"[", b",", b",", b",")):
            rows.literal(opening)
            key = pc.list_element(keys, pa.scalar(number))
            rows.column(json_texts(key) if number == 2 else key)
        opening = b"]," + _named("source_metadata") + b"{"
        texts: dict[str, pa.Array] = {}
        for name, column in written_columns(batch, sort_fields=self._sort_fields, completes=self._completes):
            rows.literal(opening + _named(name))
            texts[name] = texts[REPEATED[name]] if name in REPEATED else json_texts(column)
            rows.column(texts[name])
            opening = b","
        rows.literal(b"}," + _named("payload"))
        try:
            rows.column(self._payload_column(batch))
        except EventError as error:
            raise of_batch(error, batch, self.payload) from None
        rows.literal(b"}\n")
        return rows.joined()

    def _payload_column(self, batch: pa.RecordBatch) -> pa.Array:
        payloads, keys = batch.column("payload"), batch.column("schema_key")
        different = pc.unique(keys).to_pylist()
        if len(different) == 1:
            return self._written(payloads, different[0])
        parts, places = [], []
        for key in different:
            rows = np.flatnonzero(pc.equal(keys, key).to_numpy(zero_copy_only=False))
            parts.append(self._written(payloads.take(pa.array(rows)), key))
            places.append(rows)
        order = np.argsort(np.concatenate(places)) if places else np.empty(0, np.int64)
        return pa.concat_arrays(parts).take(pa.array(order)) if parts else payloads

    def _written(self, payloads: pa.Array, schema_key: str) -> pa.Array:
        written = self._payloads_of(schema_key).written(payloads)
        if written is None:
            written = pa.array([self.payload(text, schema_key) for text in payloads.to_pylist()], pa.binary())
        return written

    def _converters(self, schema_key: str) -> dict[str, Converter]:
        columns = self._schema_of(schema_key).columns
        return {c.name: convert for c in columns if (convert := converter(c.type)) is not None}


def _named(name: str) -> bytes:
    return f'"{name}":'.encode()


_LINE_FEED = ord("\n")
_Value = msgspec.Raw | msgspec.UnsetType


def _parsed_type(column_type: SpannerType) -> object:
    """The Python type that msgspec parses a column's values to; those that stay the same are not parsed."""
    value: Any = EVENT_VALUES[column_type.kind].parsed
    if value is None:
        return _Value
    return (list[value | None] if column_type.is_array else value) | None | msgspec.UnsetType


class _Payloads:
    """Writes many payloads of one schema at once, with the columns in the schema's order."""

    def __init__(self, schema: TableSchema) -> None:
        self._nested: list[str] = []
        fields: list[tuple[str, object, object]] = []
        for number, column in enumerate(schema.columns):
            column_type = SpannerType.parse(column.type)
            fields.append((f"f{number}", _parsed_type(column_type), msgspec.UNSET))
            if column_type.kind is ColumnKind.JSON:
                self._nested.append(f"f{number}")
        names = {f"f{number}": column.name for number, column in enumerate(schema.columns)}
        self._decoder: msgspec.json.Decoder[list[msgspec.Struct]] | None = None
        if not any(character in '"\\' or character < " " for name in names.values() for character in name):
            row = msgspec.defstruct("Row", fields, rename=names, gc=False, forbid_unknown_fields=True)
            self._decoder = msgspec.json.Decoder(list[row], strict=False)  # type: ignore[valid-type]  # "1" is an int
        self._encoder = msgspec.json.Encoder()

    def written(self, payloads: pa.Array) -> pa.Array | None:
        """The payloads as Datastream writes them; None if one of them has to be parsed alone."""
        data = b"".join((b"[", joined(payloads), b"]"))
        if self._decoder is None or b"\n" in data or b"\r" in data:
            return None
        try:
            rows = self._decoder.decode(data)
            for field in self._nested:
                _nest(rows, field)
        except (msgspec.MsgspecError, EventError):
            return None
        out = self._encoder.encode_lines(rows)
        ends = np.flatnonzero(np.frombuffer(out, np.uint8) == _LINE_FEED)
        if len(ends) != len(payloads):
            return None
        offsets = np.concatenate(([0], ends + 1)).astype(np.int32)
        lines = pa.BinaryArray.from_buffers(
            pa.binary(), len(payloads), [None, pa.py_buffer(offsets), pa.py_buffer(out)]
        )
        return pc.binary_slice(lines, 0, -1)


def _nest(rows: list[msgspec.Struct], field: str) -> None:
    """Replaces the texts of a field by the JSON that they contain."""
    for row in rows:
        value = getattr(row, field)
        if isinstance(value, str):
            setattr(row, field, _raw(value))
        elif isinstance(value, list):
            setattr(row, field, [None if item is None else _raw(item) for item in value])


_ANY = msgspec.json.Decoder(msgspec.Raw)


def _raw(text: str) -> msgspec.Raw:
    """The JSON in a text. It is validated, because invalid JSON would make the whole line unreadable.

    Raises:
        EventError: the text is not JSON.
    """
    text = text.replace("\n", " ").replace("\r", " ")  # valid JSON has line breaks between tokens only
    try:
        return _ANY.decode(text)
    except msgspec.MsgspecError:
        try:
            json.loads(text, parse_constant=int)  # accepts a lone surrogate, and rejects NaN
        except ValueError:  # the message of the cause contains the value
            raise EventError("a value of type JSON is not JSON") from None
        return msgspec.Raw(text.encode())
