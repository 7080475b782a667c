"""The rows of a window's job: reading tasks send them through Spark's shuffle to the tasks that write segments.

A row is a data change record, or the definition of a record schema that records of its slice refer to, or the report or
the error of a task that reads. Sorted by :data:`ORDER` the records of a slice are in the order of the one-process
reader: that of :attr:`connector.core.records.DataChangeRecord.order`, and of equal ones in the order in which a task
received them. Reports and errors pass through, so that the driver gets all with one job.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

import numpy as np
import orjson
import pyarrow as pa

from connector.core.changes import COLUMNS, Changes, RecordSchema, chunks, integers, sequence_numbers
from connector.core.records import ColumnType
from spark_sink.reading.windows import packed_mods
from spark_sink.reading.windows.packed_mods import packed, unpacked

REPORT, ERROR, DEFINITION, RECORD = range(4)
"""The kinds of rows; a slice's definitions are sorted before its records."""

ORDER = ("commit_timestamp", "kind", "server_transaction_id", "sequence", "record_sequence", "share", "place")
"""The columns by which a slice's rows are sorted; rows without a commit timestamp, which are no records, come first."""

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of records from which on a batch of rows ends."""

_OWN = [
    pa.field("slice", pa.int32()),
    pa.field("kind", pa.int32()),
    pa.field("share", pa.int32()),
    pa.field("place", pa.int64()),
    pa.field("sequence", pa.int64()),
    pa.field("schema", pa.string()),
    pa.field("text", pa.string()),
]
_RECORD_FIELDS = [field for field in COLUMNS if field.name not in ("record_schema", "mods")]

ROWS = pa.schema([*_OWN, *_RECORD_FIELDS, *packed_mods.FIELDS])
"""``schema`` refers to a definition, ``text`` is one, or a report or an error, as JSON; the others are a record's."""


def text_row(kind: int, share: int, text: str, *, at: int = 0, schema: str | None = None) -> pa.RecordBatch:
    """A row that is no record; ``at`` is its slice."""
    values = {"slice": at, "kind": kind, "share": share, "text": text, "schema": schema}
    return pa.RecordBatch.from_pylist([values], schema=ROWS)


class RowMaker:
    """Makes rows of what one task reads.

    Args:
        share: the number of the task's share.
        low: the window's low watermark; Unix nanoseconds, exclusive.
        high: its end, inclusive.
        slices: into how many equal spans of commit time the window is divided.
    """

    def __init__(self, share: int, low: int, high: int, slices: int) -> None:
        self._share = share
        self._low = low
        self._high = high
        self._slices = slices
        self._place = 0
        self._defined: set[tuple[int, str]] = set()
        self._names: dict[RecordSchema, str] = {}

    def rows(self, changes: Changes) -> Iterator[pa.RecordBatch]:
        """The rows of records, which are in the order of their commit timestamps, with the definitions they need."""
        for chunk in chunks(changes, BATCH_BYTES):
            yield from self._batches(chunk)

    def _batches(self, changes: Changes) -> Iterator[pa.RecordBatch]:
        span, offsets = self._high - self._low, changes.commit_timestamps - self._low - 1
        slices = (offsets * self._slices // span).astype(np.int32)  # a minute in ns times the slices fits 64 bits
        count = len(changes.record_schemas)
        used = np.unique(slices.astype(np.int64) * count + integers(changes.column("record_schema")))
        for at, code in (divmod(one, count) for one in used.tolist()):
            schema = changes.record_schemas[code]
            if (at, self._name(schema)) not in self._defined:
                self._defined.add((at, self._name(schema)))
                yield text_row(DEFINITION, self._share, definition(schema), at=at, schema=self._name(schema))
        names = pa.array([self._name(schema) for schema in changes.record_schemas], pa.string())
        count = len(changes)
        own = {
            "slice": pa.array(slices),
            "kind": pa.repeat(pa.scalar(RECORD, pa.int32()), count),
            "share": pa.repeat(pa.scalar(self._share, pa.int32()), count),
            "place": pa.array(np.arange(self._place, self._place + count)),
            "sequence": pa.array(sequence_numbers(changes.column("record_sequence"))),
            "schema": names.take(changes.column("record_schema")),
            "text": pa.nulls(count, pa.string()),
        }
        self._place += count
        columns = [own[field.name] for field in _OWN] + [changes.column(field.name) for field in _RECORD_FIELDS]
        yield pa.RecordBatch.from_arrays([*columns, *packed(changes.column("mods"))], schema=ROWS)

    def _name(self, schema: RecordSchema) -> str:
        if schema not in self._names:
            self._names[schema] = blake2b(definition(schema).encode(), digest_size=12).hexdigest()
        return self._names[schema]


def definition(schema: RecordSchema) -> str:
    """A record schema as JSON."""
    columns = [
        [column.name, column.type, column.is_primary_key, column.ordinal_position] for column in schema.column_types
    ]
    return orjson.dumps([schema.table_name, columns]).decode()


def defined(text: str) -> RecordSchema:
    """Reads the result of :func:`definition`."""
    table, columns = orjson.loads(text)
    return RecordSchema(table, tuple(ColumnType(*column) for column in columns))


def changes_of(rows: pa.RecordBatch, definitions: Mapping[str, RecordSchema]) -> Changes:
    """The records of rows, in their order."""
    encoded = rows.column("schema").dictionary_encode()
    schemas: Sequence[str] = encoded.dictionary.to_pylist()
    made = {
        "record_schema": encoded.indices.cast(pa.int32()),
        "mods": unpacked([rows.column(field.name) for field in packed_mods.FIELDS]),
    }
    columns = [made[field.name] if field.name in made else rows.column(field.name) for field in COLUMNS]
    return Changes(pa.RecordBatch.from_arrays(columns, schema=COLUMNS), tuple(definitions[name] for name in schemas))
