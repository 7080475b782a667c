"""Builds the columns of data change records from lists of their fields; all column decoders use it."""

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.byte_columns import offsets_of
from connector.core.changes import COLUMNS, Changes, Int64s, RecordSchema, mod_lists
from connector.core.records import ColumnType
from connector.core.text_columns import are_objects
from connector.core.timestamps import SECOND, parse, second

Raw = TypeVar("Raw", bound=Hashable)
"""A record's column types in their encoded form."""

_Read = TypeVar("_Read")

_RECORD_BYTES, _MOD_BYTES = 200, 30
"""Roughly what a record and a mod take in memory beside the payloads."""

_EMPTY, _NULL = pa.scalar("{}", pa.string()), pa.scalar("null", pa.string())
_POINT, _MOST_PLACES = 19, 9
"""The offset of a timestamp's decimal point, and how many digits may follow it."""

_ZONE = re.compile("Z$|[+-][0-9:]+$")
"""Z in GoogleSQL, an offset from UTC in PostgreSQL."""

_POWERS = 10 ** np.arange(_MOST_PLACES - 1, -1, -1, dtype=np.int64)
_PAYLOADS = 3
"""Payloads of a mod: keys, new values and old values."""

_LARGEST = 2**63 // SECOND
"""Seconds before or after the epoch from which on nanoseconds may not fit in 64 bits."""


@dataclass(frozen=True, slots=True)
class Fields(Generic[Raw]):
    """The fields of data change records, each a list or an array with one item a record.

    ``payloads`` holds the keys of all mods, then their new values, then their old values.
    """

    commit_timestamp: Int64s
    record_sequence: Sequence[str] | pa.Array
    server_transaction_id: Sequence[str] | pa.Array
    is_last_record_in_transaction_in_partition: Sequence[bool]
    table_name: Sequence[str]
    column_types: Sequence[Raw]
    mod_counts: Int64s
    payloads: pa.Array
    mod_type: Sequence[str] | pa.Array
    value_capture_type: Sequence[str] | pa.Array
    number_of_records_in_transaction: Sequence[int] | pa.Array
    number_of_partitions_in_transaction: Sequence[int] | pa.Array
    transaction_tag: Sequence[str] | pa.Array
    is_system_transaction: Sequence[bool]


ReadTypes = Callable[[Raw], tuple[ColumnType, ...]]
"""Parses the encoded column types of a record."""


def assembled(fields: Fields[Raw], read_timestamp: int, column_types: ReadTypes[Raw]) -> Changes | None:
    """Returns the records as columns, or None if they are not in the order of their commit timestamps.

    Raises:
        ValueError, IndexError: a field is not valid (Arrow's errors are ValueErrors).
        OverflowError: a number does not fit in 64 bits.
    """
    rows = len(fields.commit_timestamp)
    at = fields.commit_timestamp
    if bool((at[1:] < at[:-1]).any()):
        return None
    codes, schemas = _numbered(fields.table_name, fields.column_types, column_types)
    payloads, mod_sizes = _payloads(fields.payloads)
    columns = {
        "commit_timestamp": pa.array(at),
        "server_transaction_id": _filled(fields.server_transaction_id),
        "record_sequence": _filled(fields.record_sequence),
        "is_last_record_in_transaction_in_partition": _same(
            fields.is_last_record_in_transaction_in_partition, pa.bool_()
        ),
        "record_schema": codes,
        "mods": mod_lists(fields.mod_counts, *payloads),
        "mod_type": _filled(fields.mod_type),
        "value_capture_type": _filled(fields.value_capture_type),
        "number_of_records_in_transaction": _same(fields.number_of_records_in_transaction, pa.int64()),
        "number_of_partitions_in_transaction": _same(fields.number_of_partitions_in_transaction, pa.int64()),
        "transaction_tag": _same(fields.transaction_tag, pa.string()),
        "is_system_transaction": _same(fields.is_system_transaction, pa.bool_()),
        "read_timestamp": pa.repeat(pa.scalar(read_timestamp, pa.int64()), rows),
        "size": pa.array(_sizes(fields.mod_counts, mod_sizes)),
    }
    return Changes(pa.RecordBatch.from_arrays([columns[name] for name in COLUMNS.names], schema=COLUMNS), schemas)


def _numbered(
    tables: Sequence[str], raws: Sequence[Raw], column_types: ReadTypes[Raw]
) -> tuple[pa.Array, tuple[RecordSchema, ...]]:
    """Returns the index of each record's schema, and the schemas."""
    if are_same(tables) and are_same(raws):
        return repeated(0, pa.int32(), len(tables)), (_schema(tables[0], raws[0], column_types),)
    numbers: dict[tuple[str, Raw], int] = {}
    codes = [numbers.setdefault(named, len(numbers)) for named in zip(tables, raws, strict=True)]
    return pa.array(codes, pa.int32()), tuple(_schema(*named, column_types) for named in numbers)


@lru_cache(10_000)
def _schema(table: str, raw: Raw, column_types: ReadTypes[Raw]) -> RecordSchema:
    if not table:
        raise ValueError("a table has no name")
    return RecordSchema(table, column_types(raw))


def timestamps(texts: Sequence[str] | Sequence[bytes]) -> Int64s:
    """Converts RFC 3339 texts to Unix nanoseconds, as :func:`connector.core.timestamps.parse` does for one.

    Raises:
        ValueError: a text is not a valid timestamp.
        OverflowError: a timestamp does not fit in 64 bits.
    """
    if isinstance(texts[0], bytes):
        encoded = cast("Sequence[bytes]", texts)
    else:
        encoded = [text.encode() for text in cast("Sequence[str]", texts)]
    width = len(encoded[0])
    if width > _POINT and set(map(len, encoded)) == {width}:
        found = _of_one_width(np.frombuffer(b"".join(encoded), np.uint8).reshape(-1, width))
        if found is not None:
            return found
    return np.array([parse(text.decode()) for text in encoded], np.int64)


def _of_one_width(characters: npt.NDArray[np.uint8]) -> Int64s | None:
    """Converts texts of one width and zone; None if they are not of the common form."""
    first = characters[0].tobytes().decode()
    zone = _ZONE.search(first, _POINT)
    places = len(first) - _POINT - 1 - len(zone[0]) if zone else 0
    if not zone or not 1 <= places <= _MOST_PLACES:
        return None
    digits = characters[:, _POINT + 1 : _POINT + 1 + places] - ord("0")
    zones = characters[:, -len(zone[0]) :]
    if not bool((digits <= 9).all()) or not bool((zones == np.frombuffer(zone[0].encode(), np.uint8)).all()):
        return None
    seconds = np.ascontiguousarray(characters[:, : _POINT + 1]).view(f"S{_POINT + 1}").ravel()  # with the point
    firsts = np.flatnonzero(seconds[1:] != seconds[:-1]) + 1
    texts = [seconds[row].decode() for row in (0, *firsts.tolist())]
    if not all(text[10:11] == "T" and text[_POINT:] == "." for text in texts):
        return None
    offset = _offset(zone[0])
    runs = [second(text[:_POINT]) - offset for text in texts]
    if not -_LARGEST < min(runs) <= max(runs) < _LARGEST:
        return None
    fractions: Int64s = digits @ _POWERS[:places]
    if not len(firsts):
        return fractions + runs[0] * SECOND
    return fractions + np.repeat(np.array(runs, np.int64) * SECOND, np.diff(firsts, prepend=0, append=len(digits)))


@lru_cache(64)
def _offset(zone: str) -> int:
    """Returns by how many seconds a zone is ahead of UTC."""
    return (parse("2000-01-01T00:00:00Z") - parse(f"2000-01-01T00:00:00{zone}")) // SECOND


def _payloads(texts: pa.Array) -> tuple[list[pa.Array], Int64s]:
    """Returns the three columns of the mods' payloads, and the bytes of each mod."""
    if not are_objects(texts):
        texts = pc.if_else(pc.equal(texts, _NULL), _EMPTY, texts)
        if not are_objects(texts):
            raise ValueError("a payload is not a JSON object")
    mods = len(texts) // _PAYLOADS
    offsets = offsets_of(texts)
    sizes: Int64s = (offsets[1:] - offsets[:-1]).reshape(_PAYLOADS, mods).sum(axis=0, dtype=np.int64) + _MOD_BYTES
    return [texts.slice(number * mods, mods) for number in range(_PAYLOADS)], sizes


def _filled(texts: Sequence[str] | pa.Array) -> pa.Array:
    """Returns an array of texts, none of which may be empty; the caller has already checked an array."""
    if not isinstance(texts, pa.Array) and "" in texts:
        raise ValueError("a text is empty")
    return _same(texts, pa.string())


def _same(values: Sequence[str | int] | pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns the values as an array; fast if all are the same, as in most columns."""
    if isinstance(values, pa.Array):
        return values
    return repeated(values[0], kind, len(values)) if are_same(values) else pa.array(values, kind)


def repeated(value: str | int, kind: pa.DataType, times: int) -> pa.Array:
    """Returns a column with the same value in each row.

    Raises:
        OverflowError: a number does not fit in 64 bits.
    """
    return pa.repeat(_scalar(value, kind), times)


@lru_cache(1024, typed=True)
def _scalar(value: str | int, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(value, kind)


def each(values: Sequence[Raw], read: Callable[[Raw], _Read]) -> list[_Read]:
    """Returns the result of ``read`` for each value; equal values are read once."""
    if are_same(values):
        return [read(values[0])] * len(values)
    known = {value: read(value) for value in set(values)}
    return [known[value] for value in values]


def are_same(values: Sequence[Any]) -> bool:
    """True if there is at least one value, and all are the same."""
    return len(values) > 0 and values[-1] == values[0] and values.count(values[0]) == len(values)


def _sizes(counts: Int64s, mod_sizes: Int64s) -> Int64s:
    if len(counts) == len(mod_sizes) and bool((counts == 1).all()):
        return mod_sizes + _RECORD_BYTES
    ends = np.cumsum(counts)
    totals = np.concatenate(([0], np.cumsum(mod_sizes)))
    sizes: Int64s = totals[ends] - totals[ends - counts] + _RECORD_BYTES
    return sizes
