"""Data change records as columns: what a fast decoder makes, the epoch buffer cuts and the envelope is built from.

A row is a record, and the mods of a record are a list within it, so that slicing, joining and sorting records is
Arrow's work, at a cost that does not depend on what the records hold. What names and describes columns repeats from
record to record and stands once, as a :class:`Shape` that rows refer to by number. There is no Python object per row;
:meth:`Changes.of` and :meth:`Changes.records` go from and to the records of :mod:`connector.core.records`, which a few
records are cheaper as.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connector.core.records import ColumnType, DataChangeRecord, Mod, sequence_number

Int64s = npt.NDArray[np.int64]

MOD = pa.struct(
    [
        pa.field("keys", pa.string()),
        pa.field("new_values", pa.string()),
        pa.field("old_values", pa.string()),
    ]
)

_MOD_FIELDS = list(MOD)

COLUMNS = pa.schema(
    [
        pa.field("commit_timestamp", pa.int64()),
        pa.field("server_transaction_id", pa.string()),
        pa.field("record_sequence", pa.string()),
        pa.field("is_last_record_in_transaction_in_partition", pa.bool_()),
        pa.field("shape", pa.int32()),
        pa.field("mods", pa.list_(pa.field("element", MOD))),
        pa.field("mod_type", pa.string()),
        pa.field("value_capture_type", pa.string()),
        pa.field("number_of_records_in_transaction", pa.int64()),
        pa.field("number_of_partitions_in_transaction", pa.int64()),
        pa.field("transaction_tag", pa.string()),
        pa.field("is_system_transaction", pa.bool_()),
        pa.field("read_timestamp", pa.int64()),
        pa.field("size", pa.int64()),
    ]
)
"""The columns, none of which holds a null: a record's fields, its table and column types being its shape."""


_MODS = COLUMNS.field("mods").type


@dataclass(frozen=True, slots=True)
class Shape:
    """Which table records are of, and which of its columns they name."""

    table_name: str
    column_types: tuple[ColumnType, ...]


@dataclass(frozen=True)
class Changes:
    """Data change records, as columns of :data:`COLUMNS`; ``shapes`` are what its column ``shape`` counts in."""

    batch: pa.RecordBatch = field(repr=False)
    shapes: tuple[Shape, ...]

    @classmethod
    def of(cls, records: Sequence[DataChangeRecord]) -> "Changes":
        """The records as columns, in their order."""
        shapes: dict[tuple[str, tuple[ColumnType, ...]], int] = {}
        mods = [mod for record in records for mod in record.mods]
        counts = [len(record.mods) for record in records]
        columns = {
            "shape": [shapes.setdefault((r.table_name, r.column_types), len(shapes)) for r in records],
            "mods": mod_lists(
                np.array(counts, np.int64),
                [mod.keys for mod in mods],
                [mod.new_values for mod in mods],
                [mod.old_values for mod in mods],
            ),
        }
        arrays = [columns.get(field.name) or [getattr(record, field.name) for record in records] for field in COLUMNS]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(a, field.type) if isinstance(a, list) else a for a, field in zip(arrays, COLUMNS, strict=True)],
            schema=COLUMNS,
        )
        return cls(batch, tuple(Shape(*shape) for shape in shapes))

    @classmethod
    def joined(cls, parts: Iterable["Changes | DataChangeRecord"]) -> "Changes":
        """All of ``parts`` in their order, as one."""
        whole: list[Changes] = []
        loose: list[DataChangeRecord] = []
        for part in parts:
            if isinstance(part, DataChangeRecord):
                loose.append(part)
                continue
            if loose:
                whole.append(cls.of(loose))
                loose = []
            whole.append(part)
        if loose or not whole:
            whole.append(cls.of(loose))
        if len(whole) == 1:
            return whole[0]
        shapes: dict[Shape, int] = {}
        batches = []
        for part in whole:
            codes = [shapes.setdefault(shape, len(shapes)) for shape in part.shapes]
            batches.append(part.renumbered(codes))
        table = pa.Table.from_batches(batches, COLUMNS).combine_chunks()
        return cls(table.to_batches()[0] if table.num_rows else batches[0], tuple(shapes))

    def renumbered(self, codes: list[int]) -> pa.RecordBatch:
        """The batch with shapes counted by ``codes``: for each of these shapes its number among others."""
        if codes == list(range(len(codes))):
            return self.batch
        at = COLUMNS.names.index("shape")
        return self.batch.set_column(at, COLUMNS.field(at), pa.array(codes, pa.int32()).take(self.batch.column(at)))

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> pa.Array:
        """A column of :data:`COLUMNS`."""
        return self.batch.column(name)

    @cached_property
    def commit_timestamps(self) -> Int64s:
        """Nanoseconds since the epoch."""
        return integers(self.column("commit_timestamp"))

    @cached_property
    def sizes(self) -> Int64s:
        """Bytes that each is accounted with while it is held in memory."""
        return integers(self.column("size"))

    @property
    def size(self) -> int:
        """Bytes that all of them are accounted with."""
        return int(self.sizes.sum())

    @property
    def mod_counts(self) -> Int64s:
        """How many mods each has."""
        return integers(self.column("mods").value_lengths())

    @property
    def mods(self) -> int:
        """How many mods they have in all."""
        return int(self.mod_counts.sum())

    @property
    def first(self) -> int:
        """The first one's commit timestamp."""
        return int(self.commit_timestamps[0])

    @property
    def last(self) -> int:
        """The last one's commit timestamp."""
        return int(self.commit_timestamps[-1])

    def part(self, start: int, stop: int | None = None) -> "Changes":
        """Those from number ``start`` to before ``stop``; nothing is copied."""
        stop = len(self) if stop is None else stop
        if start == 0 and stop == len(self):
            return self
        return Changes(self.batch.slice(start, max(stop - start, 0)), self.shapes)

    def passed(self, timestamp: int) -> int:
        """How many were committed at or before ``timestamp``, where they are in the order of their timestamps."""
        return int(np.searchsorted(self.commit_timestamps, timestamp, "right"))

    def kept(self, mask: npt.NDArray[np.bool_]) -> "Changes":
        """Those for which ``mask`` is true."""
        return self if mask.all() else Changes(self.batch.filter(pa.array(mask)), self.shapes)

    def in_order(self) -> "Changes":
        """Sorted into the history of the database, as :attr:`connector.core.records.DataChangeRecord.order` has it."""
        at = self.commit_timestamps
        order = np.argsort(at, kind="stable")
        if bool((np.diff(at[order]) == 0).any()):
            sequences = _ranks(self.column("record_sequence"), lambda text: (sequence_number(text), text))
            transactions = _ranks(self.column("server_transaction_id"), lambda text: (0, text))
            order = np.lexsort((sequences, transactions, at))
        if bool((np.diff(order) == 1).all()):
            return self
        return Changes(self.batch.take(pa.array(order)), self.shapes)

    def records(self) -> tuple[DataChangeRecord, ...]:
        """Each as an object, in their order."""
        return tuple(
            DataChangeRecord(
                table_name=shape.table_name,
                column_types=shape.column_types,
                mods=tuple(Mod(**mod) for mod in row.pop("mods")),
                **row,
            )
            for row in self.batch.to_pylist()
            for shape in [self.shapes[row.pop("shape")]]
        )


def mod_lists(counts: Int64s, keys: object, new_values: object, old_values: object) -> pa.ListArray:
    """The column ``mods``: how many each record has, and the texts of all; lists of strings, or arrays of them."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    offsets[1:] = counts.cumsum()
    texts = [one if isinstance(one, pa.Array) else pa.array(one, pa.string()) for one in (keys, new_values, old_values)]
    flat = pa.StructArray.from_arrays(texts, fields=_MOD_FIELDS)
    return pa.ListArray.from_buffers(_MODS, len(counts), [None, pa.py_buffer(offsets)], 0, children=[flat])


def integers(array: pa.Array) -> Int64s:
    """An array without nulls as numpy's, of 64 bits."""
    found: npt.NDArray[np.integer] = array.to_numpy(zero_copy_only=False)
    return found.astype(np.int64, copy=False)


def sequence_numbers(record_sequences: pa.Array) -> Int64s:
    """Each as :func:`connector.core.records.sequence_number` has it, at most what 64 bits hold."""
    encoded = record_sequences.dictionary_encode()
    largest = np.iinfo(np.int64).max
    numbers = [min(sequence_number(text), largest) for text in encoded.dictionary.to_pylist()]
    return np.array(numbers, np.int64)[integers(encoded.indices)]


def _ranks(texts: pa.Array, key: Callable[[str], tuple[int, str]]) -> Int64s:
    """For each text its place among the different ones, sorted by ``key``."""
    encoded = texts.dictionary_encode()
    known = encoded.dictionary.to_pylist()
    places = np.empty(len(known), np.int64)
    places[sorted(range(len(known)), key=lambda index: key(known[index]))] = np.arange(len(known))
    return places[integers(encoded.indices)]
