"""Reads the payloads of one table into Arrow columns, by the types of the table's schema.

All payloads of a batch are parsed at once. If that fails, they are parsed one by one: to the same values, or to an
error that names the table and the column, and never a value. A column that was not captured is null.
"""

import re
from binascii import a2b_base64
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.byte_columns import joined
from connector.core.column_kinds import ColumnKind, Layout
from connector.core.timestamps import parse
from connector.envelope.avro_schema import AvroColumn
from spark_sink.errors import SinkError

_NULL_TEXT = pa.scalar("null", pa.string())
_NOTHING = pa.scalar(None, pa.string())
_FIELD = re.compile(r"at `\$\[[^\]]*\]\.f(\d+)")
"""The path at which msgspec found a value of an unexpected type."""

_ODD = re.compile(r'["\\\x00-\x1f]')
"""A character that msgspec does not accept in the name of a field."""


class PayloadReader:
    """Reads payloads of one schema.

    Args:
        table: the table's name, for errors.
        columns: the columns of the schema.
        null_arrays: whether a list that is NULL or absent is null instead of empty.
        exact: the names of columns whose timestamps must not be truncated.
        purpose: what the payloads are read for, for errors.
        hint: what the user can do instead, for errors.
    """

    def __init__(
        self,
        table: str,
        columns: Sequence[AvroColumn],
        *,
        null_arrays: bool = False,
        exact: Collection[str] = (),
        purpose: str = "written as Avro",
        hint: str = "Write JSON lines (sink.format: jsonl), which take every value as it is.",
    ) -> None:
        self._table = table
        self._columns = columns
        self._purpose = purpose
        self._hint = hint
        readings = [_reading(column) for column in columns]
        fields = [
            (f"f{number}", *_field(reading, column.layout))
            for number, (column, reading) in enumerate(zip(columns, readings, strict=True))
        ]
        self._renumbered = _decoder(fields, {})
        names = {f"f{number}": column.name for number, column in enumerate(columns)}
        self._decoder = None if any(map(_ODD.search, names.values())) else _decoder(fields, names)
        self._values = [attrgetter(name) for name in names]
        self._read = [
            _lists(reading.read, nulls=null_arrays) if column.layout is Layout.LIST else reading.read
            for column, reading in zip(columns, readings, strict=True)
        ]
        for number, column in enumerate(columns):
            if column.name in exact and column.kind is ColumnKind.TIMESTAMP and column.layout is Layout.VALUE:
                self._read[number] = _exact_timestamps

    def columns(self, payloads: pa.Array) -> list[pa.Array]:
        """The values of each column, in the schema's order.

        Raises:
            SinkError: a payload does not match the schema.
        """
        rows = self._parsed(payloads)
        return [
            self._column(column, read, list(map(value, rows)))
            for column, value, read in zip(self._columns, self._values, self._read, strict=True)
        ]

    def _column(self, column: AvroColumn, read: "Read", values: list[Any]) -> pa.Array:
        try:
            return read(values)
        except _TruncationError:
            raise SinkError(
                f"column {column.name} in the key of table {self._table} has digits below a microsecond, which would be"
                " cut",
                hint="Set sink.timestamps: text.",
            ) from None
        except (pa.ArrowException, TypeError, ValueError):
            raise self._rejection(f"column {column.name}") from None  # the cause may contain a value

    def unfit(self, payloads: pa.Array) -> dict[int, str]:
        """The payloads that :meth:`columns` rejects, by index, with the reason."""
        found: dict[int, str] = {}
        rows: dict[int, Any] = {}
        for index in range(len(payloads)):
            try:
                (rows[index],) = self._parsed(payloads.slice(index, 1))
            except SinkError as error:
                found[index] = str(error)
        for column, value, read in zip(self._columns, self._values, self._read, strict=True):
            if self._why_unread(column, read, list(map(value, rows.values()))):
                whys = {index: self._why_unread(column, read, [value(row)]) for index, row in rows.items()}
                found |= {index: why for index, why in whys.items() if why}
        return found

    def _why_unread(self, column: AvroColumn, read: "Read", values: list[Any]) -> str:
        try:
            self._column(column, read, values)
        except SinkError as error:
            return str(error)
        return ""

    def _parsed(self, payloads: pa.Array) -> list[Any]:
        if self._decoder is not None and not payloads.null_count:
            try:
                rows = self._decoder.decode(b"".join((b"[", joined(payloads), b"]")))
            except msgspec.MsgspecError:
                rows = []  # parse them one by one below
            if len(rows) == len(payloads):  # otherwise a payload is not one object, though their concatenation is valid
                return rows
        texts = b",".join(self._with_numbers(text) for text in payloads.to_pylist())
        try:
            return self._renumbered.decode(b"[%b]" % texts)
        except msgspec.MsgspecError as error:
            field = _FIELD.search(str(error))
            raise self._rejection(f"column {self._columns[int(field[1])].name}" if field else "a column") from None

    def _with_numbers(self, text: str) -> bytes:
        """A payload with the columns named by their numbers."""
        try:
            row = orjson.loads(text)
        except orjson.JSONDecodeError:
            raise self._rejection("the row") from None
        if not isinstance(row, dict):
            raise self._rejection("the row")
        out: dict[str, object] = {}
        for number, column in enumerate(self._columns):
            if column.name in row:
                out[f"f{number}"] = _fitted(row.pop(column.name), column)
        if row:
            raise self._rejection(f"column {next(iter(row))}, which the schema does not know,")
        return orjson.dumps(out)

    def _rejection(self, what: str) -> SinkError:
        return SinkError(
            f"{what} of table {self._table} holds a value that does not fit its type, and cannot be {self._purpose}",
            hint=self._hint,
        )


def _decoder(fields: list[tuple[str, object, object]], names: dict[str, str]) -> "msgspec.json.Decoder[list[Any]]":
    row = msgspec.defstruct("Row", fields, rename=names, gc=False, forbid_unknown_fields=True)
    return msgspec.json.Decoder(list[row])  # type: ignore[valid-type]


def _field(reading: "PayloadReading", layout: Layout) -> tuple[object, object]:
    """The type of a field of msgspec, and its default."""
    if layout is Layout.LIST:
        return list[reading.parsed] | None, None  # type: ignore[name-defined]
    return reading.parsed, reading.absent


def _fitted(value: object, column: AvroColumn) -> object:
    """The value with JSON that is not in a text, as some payloads have it, put into a text."""
    if column.kind is not ColumnKind.JSON or column.layout is Layout.JSON_ARRAY:
        return value
    if column.layout is Layout.LIST and isinstance(value, list):
        return [_json_text(item) for item in value]
    return _json_text(value)


def _json_text(value: object) -> object:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


Read = Callable[[list[Any]], pa.Array]


def _lists(read: Read, *, nulls: bool) -> Read:
    def lists(values: list[Any]) -> pa.Array:
        elements = read(list(chain.from_iterable(filter(None, values))))
        lengths = [len(value) if value else 0 for value in values]
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int32)))
        mask = pa.array([value is None for value in values], pa.bool_()) if nulls else None
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, mask=mask)

    return lists


def _texts(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.string())


def _booleans(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.bool_())


def _longs(values: list[Any]) -> pa.Array:
    try:
        texts = _texts(values)
    except (pa.ArrowException, TypeError):
        texts = _texts([None if value is None else str(value) for value in values])
    return texts.cast(pa.int64())


def _raw_texts(values: list[Any]) -> pa.Array:
    texts = pa.array(list(map(bytes, values)), pa.binary()).cast(pa.string())
    nulls = pc.equal(texts, _NULL_TEXT)
    return pc.if_else(nulls, _NOTHING, texts) if nulls.true_count else texts


def _reals(kind: pa.DataType) -> Read:
    return lambda values: pc.utf8_trim(_raw_texts(values), characters='"').cast(kind)


def _texts_as(kind: pa.DataType) -> Read:
    return lambda values: _texts(values).cast(kind)


def _bytes(values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else a2b_base64(value, strict_mode=True) for value in values], pa.binary())


def _timestamps(values: list[Any]) -> pa.Array:
    return timestamps(_texts(values))


class _TruncationError(ValueError):
    """A timestamp has digits below a microsecond."""


_BELOW_MICROSECONDS = r"\.[0-9]{6}[0-9]*[1-9]"


def _exact_timestamps(values: list[Any]) -> pa.Array:
    texts = _texts(values)
    if pc.any(pc.match_substring_regex(texts, _BELOW_MICROSECONDS)).as_py():
        raise _TruncationError
    return timestamps(texts)


def timestamps(texts: pa.Array) -> pa.Array:
    """Microseconds since 1970 of RFC 3339 texts; finer digits are truncated.

    Raises:
        ValueError: a text is not a timestamp.
    """
    if pc.all(pc.ends_with(texts, "Z")).as_py() is not False:
        try:
            seconds = pc.utf8_slice_codeunits(texts, 0, 19).cast(pa.timestamp("s")).cast(pa.int64())
            digits = pc.utf8_slice_codeunits(texts, 20, -1)
            micros = pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 6, "0"), 0, 6).cast(pa.int64())
            return pc.add(pc.multiply(seconds, _MILLION), micros)
        except pa.ArrowInvalid:
            pass  # another form of RFC 3339
    return pa.array([None if text is None else parse(text) // 1000 for text in texts.to_pylist()], pa.int64())


_MILLION = pa.scalar(1_000_000, pa.int64())


def _arrays_of_longs(values: list[Any]) -> pa.Array:
    return pc.replace_substring(_raw_texts(values), '"', "")


def _arrays_of_json(values: list[Any]) -> pa.Array:
    return _texts(
        [
            None if value is None else f"[{','.join('null' if item is None else item for item in value)}]"
            for value in values
        ]
    )


@dataclass(frozen=True, slots=True)
class PayloadReading:
    """The reading of the values of one kind.

    Attributes:
        parsed: the Python type that msgspec parses a value to.
        absent: stands for a value that is not in the payload.
        read: makes an Arrow column of the parsed values.
    """

    parsed: object
    absent: object
    read: Read


def _text(read: Read) -> PayloadReading:
    return PayloadReading(str | None, None, read)


def _raw(read: Read) -> PayloadReading:
    """Keeps the bytes of the value as they are in the payload."""
    return PayloadReading(msgspec.Raw, msgspec.Raw(b"null"), read)


READINGS: Mapping[ColumnKind, PayloadReading] = {
    ColumnKind.BOOL: PayloadReading(bool | None, None, _booleans),
    ColumnKind.INT64: PayloadReading(str | int | None, None, _longs),
    ColumnKind.FLOAT32: _raw(_reals(pa.float32())),  # the text, because parsing a number may drop the sign of -0
    ColumnKind.FLOAT64: _raw(_reals(pa.float64())),
    ColumnKind.NUMERIC: _text(_texts_as(pa.decimal128(38, 9))),
    ColumnKind.PG_NUMERIC: _text(_texts),
    ColumnKind.STRING: _text(_texts),
    ColumnKind.BYTES: _text(_bytes),
    ColumnKind.DATE: _text(_texts_as(pa.date32())),
    ColumnKind.TIMESTAMP: _text(_timestamps),
    ColumnKind.JSON: _text(_texts),
    ColumnKind.UUID: _text(_texts),
    ColumnKind.INTERVAL: _text(_texts),
    ColumnKind.ENUM: PayloadReading(str | int | None, None, _longs),
    ColumnKind.PROTO: _text(_bytes),
    ColumnKind.UNKNOWN: _raw(_raw_texts),
}

_ARRAY_OF_LONGS = _raw(_arrays_of_longs)
_ARRAYS_AS_JSON: Mapping[ColumnKind, PayloadReading] = {
    ColumnKind.INT64: _ARRAY_OF_LONGS,
    ColumnKind.ENUM: _ARRAY_OF_LONGS,
    ColumnKind.JSON: PayloadReading(list[str | None] | None, None, _arrays_of_json),
}
_OTHER_ARRAY_AS_JSON = _raw(_raw_texts)
"""The JSON of an array of any other kind is written as Spanner gives it."""


def _reading(column: AvroColumn) -> PayloadReading:
    if column.layout is Layout.JSON_ARRAY:
        return _ARRAYS_AS_JSON.get(column.kind, _OTHER_ARRAY_AS_JSON)
    return READINGS[column.kind]
