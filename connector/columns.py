"""What the fast ways share: columns of data change records from lists of their fields."""

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.changes import COLUMNS, Changes, Int64s, Shape, integers, mod_lists
from connector.pieces import bytes_of, ends_of
from connector.records import ColumnType
from connector.texts import are_objects
from connector.timestamps import SECOND, parse, second

Raw = TypeVar("Raw", bound=Hashable)
"""A record's column types as they came."""

_RECORD_BYTES, _MOD_BYTES = 200, 30
"""What a record and a mod take beside their payloads, about."""

_EMPTY, _NULL = pa.scalar("{}", pa.string()), pa.scalar("null", pa.string())
_SHAPES = 10_000
_POINT, _MOST_PLACES = 19, 9
"""Where a timestamp's decimal point stands, and how many digits may follow it."""

_ZONE = re.compile("Z$|[+-][0-9:]+$")
"""In GoogleSQL it is Z, in PostgreSQL an offset."""

_LARGEST = 2**63 // SECOND
"""The seconds since the epoch, and before it, from which on nanoseconds may not have room in 64 bits."""


@dataclass(frozen=True, slots=True)
class Fields(Generic[Raw]):
    """The fields of data change records, each a list with an item a record, and those of their mods.

    Fields may be arrays, too. Payloads are texts as bytes, or an array of strings.
    """

    commit_timestamp: Int64s
    record_sequence: Sequence[str] | pa.Array
    server_transaction_id: Sequence[str] | pa.Array
    is_last_record_in_transaction_in_partition: Sequence[bool] | npt.NDArray[np.bool_]
    table_name: Sequence[str]
    column_types: Sequence[Raw]
    mod_counts: Int64s
    keys: Sequence[bytes] | pa.Array
    new_values: Sequence[bytes] | pa.Array
    old_values: Sequence[bytes] | pa.Array
    mod_type: Sequence[str] | pa.Array
    value_capture_type: Sequence[str] | pa.Array
    number_of_records_in_transaction: Sequence[int] | pa.Array
    number_of_partitions_in_transaction: Sequence[int] | pa.Array
    transaction_tag: Sequence[str] | pa.Array
    is_system_transaction: Sequence[bool] | npt.NDArray[np.bool_]


class Assembler(Generic[Raw]):
    """Makes columns of fields; what it has learned of column types it keeps.

    Args:
        column_types: reads what a record's column types are in the form in which they came.
    """

    def __init__(self, column_types: Callable[[Raw], tuple[ColumnType, ...]]) -> None:
        self._column_types = column_types
        self._shapes: dict[tuple[str, Raw], Shape] = {}

    def changes(self, fields: Fields[Raw], read_timestamp: int) -> Changes | None:
        """The records as columns; None where they are not in the order of their commit timestamps.

        Raises:
            ValueError, IndexError: a field does not hold what it should (Arrow's errors are ValueErrors).
            OverflowError: a number has no room in 64 bits.
        """
        rows = len(fields.commit_timestamp)
        at = fields.commit_timestamp
        if bool((at[1:] < at[:-1]).any()):
            return None
        codes, shapes = self._numbered(fields.table_name, fields.column_types)
        payloads, mod_sizes = _payloads(fields.keys, fields.new_values, fields.old_values)
        columns = {
            "commit_timestamp": pa.array(at),
            "server_transaction_id": _filled(fields.server_transaction_id),
            "record_sequence": _filled(fields.record_sequence),
            "is_last_record_in_transaction_in_partition": pa.array(
                fields.is_last_record_in_transaction_in_partition, pa.bool_()
            ),
            "shape": codes,
            "mods": mod_lists(fields.mod_counts, *payloads),
            "mod_type": _filled(fields.mod_type),
            "value_capture_type": _filled(fields.value_capture_type),
            "number_of_records_in_transaction": _same(fields.number_of_records_in_transaction, pa.int64()),
            "number_of_partitions_in_transaction": _same(fields.number_of_partitions_in_transaction, pa.int64()),
            "transaction_tag": _same(fields.transaction_tag, pa.string()),
            "is_system_transaction": pa.array(fields.is_system_transaction, pa.bool_()),
            "read_timestamp": pa.repeat(pa.scalar(read_timestamp, pa.int64()), rows),
            "size": pa.array(_sizes(fields.mod_counts, mod_sizes)),
        }
        return Changes(pa.RecordBatch.from_arrays([columns[name] for name in COLUMNS.names], schema=COLUMNS), shapes)

    def _numbered(self, tables: Sequence[str], column_types: Sequence[Raw]) -> tuple[pa.Array, tuple[Shape, ...]]:
        if _are_same(tables) and _are_same(column_types):
            shape = self._shape((tables[0], column_types[0]))
            return pa.repeat(pa.scalar(0, pa.int32()), len(tables)), (shape,)
        numbers: dict[tuple[str, Raw], int] = {}
        codes = [numbers.setdefault(named, len(numbers)) for named in zip(tables, column_types, strict=True)]
        return pa.array(codes, pa.int32()), tuple(self._shape(named) for named in numbers)

    def _shape(self, named: tuple[str, Raw]) -> Shape:
        known = self._shapes.get(named)
        if known is None:
            if len(self._shapes) >= _SHAPES:
                self._shapes.clear()
            if not named[0]:
                raise ValueError("a table has no name")
            known = self._shapes[named] = Shape(named[0], self._column_types(named[1]))
        return known


def timestamps(texts: Sequence[str] | pa.Array) -> Int64s:
    """Nanoseconds since the epoch of RFC 3339 texts, as :func:`connector.timestamps.parse` reads each.

    Raises:
        ValueError: one of them is no such text.
        OverflowError: one of them has no room in 64 bits.
    """
    column = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    ends, width = ends_of(column), len(column[0].as_py().encode())
    if bool((np.diff(ends, prepend=0) == width).all()) and width > _POINT:
        found = _of_one_width(np.frombuffer(bytes_of(column), np.uint8).reshape(-1, width))
        if found is not None:
            return found
    return np.array([parse(text) for text in column.to_pylist()], np.int64)


def _of_one_width(characters: npt.NDArray[np.uint8]) -> Int64s | None:
    """Those of texts of one width and zone; None where they are not of the common form."""
    first = characters[0].tobytes().decode()
    zone = _ZONE.search(first, _POINT)
    places = len(first) - _POINT - 1 - len(zone[0]) if zone else 0
    if not zone or not 1 <= places <= _MOST_PLACES:
        return None
    digits = characters[:, _POINT + 1 : _POINT + 1 + places] - ord("0")
    if not (
        bool((characters[:, (10, _POINT)] == np.frombuffer(b"T.", np.uint8)).all())
        and bool((characters[:, -len(zone[0]) :] == np.frombuffer(zone[0].encode(), np.uint8)).all())
        and bool((digits <= 9).all())
    ):
        return None
    offset = (parse(f"{first[:_POINT]}Z") - parse(f"{first[:_POINT]}{zone[0]}")) // SECOND
    seconds = characters[:, :_POINT]
    firsts = np.concatenate(([0], np.flatnonzero((seconds[1:] != seconds[:-1]).any(axis=1)) + 1))
    runs = np.array([second(seconds[row].tobytes().decode()) - offset for row in firsts.tolist()], np.int64)
    if not bool((np.abs(runs) < _LARGEST).all()):
        return None
    powers = 10 ** np.arange(8, 8 - places, -1, dtype=np.int64)
    found: Int64s = np.repeat(runs, np.diff(firsts, append=len(characters))) * SECOND + digits @ powers
    return found


def _payloads(*columns: Sequence[bytes] | pa.Array) -> tuple[list[pa.Array], Int64s]:
    """The columns of the payloads of mods, and how many bytes each mod has in all of them."""
    found = []
    sizes = np.full(len(columns[0]), _MOD_BYTES, np.int64)
    for texts in columns:
        column = _same(texts, pa.string())
        if not are_objects(column if isinstance(texts, pa.Array) or not _are_same(texts) else column[:1]):
            column = pc.if_else(pc.equal(column, _NULL), _EMPTY, column)
            if not are_objects(column):
                raise ValueError("a payload is not a JSON object")
        lengths = integers(pc.binary_length(column))
        found.append(column)
        sizes += lengths
    return found, sizes


def _filled(texts: Sequence[str] | pa.Array) -> pa.Array:
    """An array of texts that hold something, as in every record; of one that is an array, this has been looked at."""
    if not isinstance(texts, pa.Array) and "" in texts:
        raise ValueError("a text is empty")
    return _same(texts, pa.string())


def _same(values: Sequence[Hashable] | pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as an array, made at once where all are the same, as of most columns they are."""
    if isinstance(values, pa.Array):
        return values
    if _are_same(values):
        return pa.repeat(pa.array(values[:1], kind)[0], len(values))
    return pa.array(values, kind)


def _are_same(values: Sequence[Hashable]) -> bool:
    return len(values) > 0 and values[-1] == values[0] and values.count(values[0]) == len(values)


def _sizes(counts: Int64s, mod_sizes: Int64s) -> Int64s:
    ends = np.cumsum(counts)
    totals = np.concatenate(([0], np.cumsum(mod_sizes)))
    sizes: Int64s = totals[ends] - totals[ends - counts] + _RECORD_BYTES
    return sizes
