"""Data change records as columns: decoders make them, the epoch buffer slices them, the envelope is built of them.

A row is a record, and the mods of a record are a list within it. So Arrow slices, joins and sorts records at a cost
that does not depend on their contents. The names and types of columns repeat from record to record and are held once,
as a :class:`RecordSchema` that rows refer to by number. There is no Python object per row; :meth:`Changes.of` and
:meth:`Changes.records` convert from and to the records of :mod:`connector.core.records`, cheaper for a few records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
        pa.field("record_schema", pa.int32()),
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
"""The columns, without nulls: a record's fields; the record schema has its table and column types."""


_MODS = COLUMNS.field("mods").type


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """The table of records, and the columns of it that they name."""

    table_name: str
    column_types: tuple[ColumnType, ...]


@dataclass(frozen=True)
class Changes:
    """Data change records as columns of :data:`COLUMNS`; ``record_schema`` is an index into ``record_schemas``."""

    batch: pa.RecordBatch = field(repr=False)
    record_schemas: tuple[RecordSchema, ...]

    @classmethod
    def of(cls, records: Sequence[DataChangeRecord]) -> "Changes":
        """The records as columns, in their order."""
        schemas: dict[tuple[str, tuple[ColumnType, ...]], int] = {}
        mods = [mod for record in records for mod in record.mods]
        counts = [len(record.mods) for record in records]
        columns = {
            "record_schema": [schemas.setdefault((r.table_name, r.column_types), len(schemas)) for r in records],
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
        return cls(batch, tuple(RecordSchema(*schema) for schema in schemas))

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
        schemas: dict[RecordSchema, int] = {}
        batches = []
        for part in whole:
            codes = [schemas.setdefault(schema, len(schemas)) for schema in part.record_schemas]
            batches.append(_renumbered(part.batch, codes))
        table = pa.Table.from_batches(batches, COLUMNS).combine_chunks()
        return cls(table.to_batches()[0] if table.num_rows else batches[0], tuple(schemas))

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> pa.Array:
        """A column of :data:`COLUMNS`."""
        return self.batch.column(name)

    @cached_property
    def commit_timestamps(self) -> Int64s:
        """Unix nanoseconds."""
        return integers(self.column("commit_timestamp"))

    @cached_property
    def sizes(self) -> Int64s:
        """Bytes of memory that each record is accounted with."""
        return integers(self.column("size"))

    @property
    def size(self) -> int:
        """Bytes of memory that all records are accounted with."""
        return int(self.sizes.sum())

    @property
    def mod_counts(self) -> Int64s:
        """The number of mods of each record."""
        return integers(self.column("mods").value_lengths())

    @property
    def mods(self) -> int:
        """The number of mods of all records."""
        return int(self.mod_counts.sum())

    @property
    def first(self) -> int:
        """The first record's commit timestamp."""
        return int(self.commit_timestamps[0])

    @property
    def last(self) -> int:
        """The last record's commit timestamp."""
        return int(self.commit_timestamps[-1])

    def part(self, start: int, stop: int | None = None) -> "Changes":
        """The records from index ``start`` to before ``stop``; nothing is copied."""
        stop = len(self) if stop is None else stop
        if start == 0 and stop == len(self):
            return self
        return Changes(self.batch.slice(start, max(stop - start, 0)), self.record_schemas)

    def passed(self, timestamp: int) -> int:
        """The number of records committed at or before ``timestamp``; they must be in the order of their timestamps."""
        return int(np.searchsorted(self.commit_timestamps, timestamp, "right"))

    def kept(self, mask: npt.NDArray[np.bool_]) -> "Changes":
        """The records for which ``mask`` is true."""
        return self if mask.all() else Changes(self.batch.filter(pa.array(mask)), self.record_schemas)

    def in_order(self) -> "Changes":
        """The records in commit order, as of :attr:`connector.core.records.DataChangeRecord.order`."""
        at = self.commit_timestamps
        order = np.argsort(at, kind="stable")
        if bool((np.diff(at[order]) == 0).any()):
            sequences = _ranks(self.column("record_sequence"), lambda text: (sequence_number(text), text))
            transactions = _ranks(self.column("server_transaction_id"), lambda text: (0, text))
            order = np.lexsort((sequences, transactions, at))
        if bool((np.diff(order) == 1).all()):
            return self
        return Changes(self.batch.take(pa.array(order)), self.record_schemas)

    def records(self) -> tuple[DataChangeRecord, ...]:
        """Each record as an object, in order."""
        return tuple(
            DataChangeRecord(
                table_name=schema.table_name,
                column_types=schema.column_types,
                mods=tuple(Mod(**mod) for mod in row.pop("mods")),
                **row,
            )
            for row in self.batch.to_pylist()
            for schema in [self.record_schemas[row.pop("record_schema")]]
        )


def chunks(changes: Changes, size: int) -> Iterator[Changes]:
    """The records in parts that each end with the record that reaches ``size`` bytes."""
    ends = np.cumsum(changes.sizes)
    start, before = 0, 0
    while start < len(changes):
        stop = min(int(np.searchsorted(ends, before + size)) + 1, len(changes))
        yield changes.part(start, stop)
        start, before = stop, int(ends[stop - 1])


def _renumbered(batch: pa.RecordBatch, codes: list[int]) -> pa.RecordBatch:
    """The batch with other numbers for its record schemas: ``codes`` has the new number of each."""
    if codes == list(range(len(codes))):
        return batch
    at = COLUMNS.names.index("record_schema")
    return batch.set_column(at, COLUMNS.field(at), pa.array(codes, pa.int32()).take(batch.column(at)))


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
