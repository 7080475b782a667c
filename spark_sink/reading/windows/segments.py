"""The tasks that write a window's segments: sorted rows in, small reports out.

A task streams its rows: it keeps the records of one commit timestamp and a segment that is being written, whatever the
window holds. A segment ends at distinct commit timestamps alone, so that no transaction is split and the order across
segments is that of the records. Its name is of this attempt alone; nothing of it is in an epoch before the driver has
sealed it.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import orjson
import pyarrow as pa

from connector.core.changes import Changes, Int64s, RecordSchema, chunks, integers
from connector.core.epoch import incomplete_transactions
from connector.core.filters import RecordFilter
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.core.windows import without_repeats
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.spool.reading import Spool
from connector.spool.segments import SegmentBuffer
from spark_sink.reading.windows.rows import BATCH_BYTES, DEFINITION, ERROR, RECORD, REPORT, changes_of, defined

SEGMENT_BYTES = 48 * 1024 * 1024
"""Bytes from which on a segment ends; with the last batch it stays below 64 MiB."""

SEGMENT, SCHEMAS, INCOMPLETE = "segment", "schemas", "incomplete"
_PASSED = {REPORT: "report", ERROR: "error"}

RESULTS = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("slice", pa.int32()),
        pa.field("part", pa.int32()),
        pa.field("text", pa.string()),
    ]
)
"""The schema of the rows that reach the driver; ``text`` is JSON."""


class WriterSetup(msgspec.Struct, frozen=True):
    """The settings that the writers of a window share.

    Attributes:
        spool: its path or URL.
        epoch: the number of the epoch that the window will be.
        writer: the id of the spool's writer.
        source: project, instance, database, change stream and default schema.
        stream_name: the configured stream name, or None.
        read_method: the configured read method.
        include: patterns of tables, as of :class:`connector.core.filters.RecordFilter`.
        exclude: patterns of tables.
        skip_transaction_tags: prefixes of tags.
        schemas: those known at the window's low watermark, each as JSON.
        of_some_placements: whether the stream has placements that are not read.
        has_repeats: whether two shares may read one partition: the MUTABLE_KEY_RANGE mode.
        declared: the key order of tables that are new or have another key in this window.
    """

    spool: str
    epoch: int
    writer: str
    source: tuple[str, str, str, str, str]
    stream_name: str | None
    read_method: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    skip_transaction_tags: tuple[str, ...]
    schemas: tuple[str, ...]
    of_some_placements: bool
    has_repeats: bool
    declared: dict[str, tuple[str, ...]]


class ChangedSchemas(msgspec.Struct, frozen=True):
    """The schemas of a writer that met a new table or column.

    Attributes:
        keys: of all tables, after the last record.
        schemas: those that are new, each as JSON, in the order in which they were met.
        unordered: by table, a key of several columns whose order was not known; its columns by their positions.
    """

    keys: dict[str, str]
    schemas: tuple[str, ...]
    unordered: dict[str, tuple[str, ...]]


def writer_of(setup: WriterSetup) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``, which writes the segments of sorted rows and yields rows of :data:`RESULTS`."""
    encoded = msgspec.json.encode(setup)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _Task(msgspec.json.decode(encoded, type=WriterSetup))
        for batch in batches:
            yield from task.rows(batch)
        yield from task.finished()

    return write


def _row(kind: str, text: str, at: int = 0, part: int = 0) -> pa.RecordBatch:
    """A row of :data:`RESULTS`; ``at`` is its slice."""
    values = {"kind": kind, "slice": at, "part": part, "text": text}
    return pa.RecordBatch.from_pylist([values], schema=RESULTS)


class _Task:
    """Writes the rows of one task, slice by slice."""

    def __init__(self, setup: WriterSetup) -> None:
        self._setup = setup
        source = Source(*setup.source)
        self._envelope = EnvelopeBuilder(source, stream_name=setup.stream_name, read_method=setup.read_method)
        self._keeps = RecordFilter(setup.include, setup.exclude, setup.skip_transaction_tags)
        self._registry = SchemaRegistry(TableSchema.from_json(one.encode()) for one in setup.schemas)
        for table, key in setup.declared.items():
            self._registry.declare(table, key)
        self._known = dict(self._registry.schemas)
        self._keys = dict(self._registry.keys)
        self._unordered: dict[str, tuple[str, ...]] = {}
        self._definitions: dict[str, RecordSchema] = {}
        self._name = f"segments/{setup.epoch:020d}-{setup.writer}-{secrets.token_hex(8)}"
        self._spool = Spool.at(setup.spool)
        self._segments = 0
        self._slice = -1
        self._part = 0
        self._held: list[tuple[Changes, Int64s]] = []
        """Records of one commit timestamp, whose others may be in the next batch, and their shares."""
        self._segment: _Segment | None = None

    def rows(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Takes sorted rows."""
        slices, kinds = integers(batch.column("slice")), integers(batch.column("kind"))
        firsts = np.flatnonzero(np.diff(slices * 16 + kinds, prepend=-1))
        for first, end in zip(firsts.tolist(), [*firsts.tolist()[1:], len(slices)], strict=True):
            at, kind = int(slices[first]), int(kinds[first])
            if at != self._slice:
                yield from self._end_slice()
                self._slice, self._part = at, 0
            part = batch.slice(first, end - first)
            if kind == RECORD:
                yield from self._take(changes_of(part, self._definitions), integers(part.column("share")))
            elif kind == DEFINITION:
                for name, text in zip(*(part.column(name).to_pylist() for name in ("schema", "text")), strict=True):
                    if name not in self._definitions:
                        self._definitions[name] = defined(text)
            else:
                yield from (_row(_PASSED[kind], text) for text in part.column("text").to_pylist())

    def finished(self) -> Iterator[pa.RecordBatch]:
        """Ends the last slice, and reports schemas that have changed."""
        yield from self._end_slice()
        if self._registry.keys != self._keys:
            new = tuple(one.to_json().decode() for key, one in self._registry.schemas.items() if key not in self._known)
            changed = ChangedSchemas(dict(self._registry.keys), new, self._unordered)
            yield _row(SCHEMAS, msgspec.json.encode(changed).decode())

    def _take(self, changes: Changes, shares: Int64s) -> Iterator[pa.RecordBatch]:
        last = int(np.searchsorted(changes.commit_timestamps, changes.last, "left"))
        if self._held and self._held[-1][0].last != changes.first:
            yield from self._write_held()
        if last:
            self._held.append((changes.part(0, last), shares[:last]))
            yield from self._write_held()
        self._held.append((changes.part(last), shares[last:]))

    def _write_held(self) -> Iterator[pa.RecordBatch]:
        changes = Changes.joined([part for part, _ in self._held])
        if self._setup.has_repeats:
            changes = without_repeats(changes, np.concatenate([shares for _, shares in self._held]))
        self._held = []
        for one in incomplete_transactions(changes, of_some_placements=self._setup.of_some_placements):
            found = [one.server_transaction_id, one.commit_timestamp, one.expected, one.received]
            yield _row(INCOMPLETE, orjson.dumps(found).decode())
        changes = self._keeps(changes)
        if not changes.mods:
            return
        self._unordered.update(self._registry.unordered(changes))
        self._segment = self._segment or _Segment()
        for chunk in chunks(changes, BATCH_BYTES):
            self._segment.append(chunk, self._envelope.build(chunk, self._registry, self._setup.epoch))
        if self._segment.buffer.bytes >= SEGMENT_BYTES:
            yield self._store()

    def _end_slice(self) -> Iterator[pa.RecordBatch]:
        if self._held:
            yield from self._write_held()
        if self._segment is not None:
            yield self._store()

    def _store(self) -> pa.RecordBatch:
        assert self._segment is not None
        path = f"{self._name}-{self._segments}.arrow"
        row = _row(SEGMENT, self._segment.stored(self._spool, path), self._slice, self._part)
        self._segments, self._part, self._segment = self._segments + 1, self._part + 1, None
        return row


class _Segment:
    """A segment that is being written, and the mods that it holds."""

    def __init__(self) -> None:
        self.buffer = SegmentBuffer()
        self._tables: Counter[str] = Counter()
        self._types: Counter[str] = Counter()
        self._first = self._last = 0

    def append(self, changes: Changes, rows: pa.RecordBatch) -> None:
        """Adds records, as the envelope's rows."""
        self._first = self._first or changes.first
        self._last = changes.last
        self.buffer.append(rows)
        mods = changes.mod_counts
        codes, names = integers(changes.column("record_schema")), [one.table_name for one in changes.record_schemas]
        _count(self._tables, names, np.bincount(codes, mods, len(names)).astype(np.int64))
        types = changes.column("mod_type").dictionary_encode()
        _count(self._types, types.dictionary.to_pylist(), np.bincount(integers(types.indices), mods).astype(np.int64))

    def stored(self, spool: Spool, path: str) -> str:
        """Writes it into the spool, durably; returns its description, with the mods by table and by type, as JSON."""
        file = self.buffer.store(spool.storage, path, first=self._first, last=self._last)
        described = {"file": file.model_dump(mode="json"), "tables": self._tables, "types": self._types}
        return orjson.dumps(described).decode()


def _count(counter: Counter[str], names: list[str], mods: Int64s) -> None:
    for name, count in zip(names, mods.tolist(), strict=True):
        if count:
            counter[name] += count
