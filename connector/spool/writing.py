"""Seals epochs into a spool: the one writer and its atomic manifests.

A seal writes the segment, then new schemas, then a large cut, and then creates the manifest: only the last makes the
epoch exist. The spool's lock keeps out a second daemon of this machine. A manifest is created and never overwritten,
which keeps out a daemon that the lock does not reach (:mod:`connector.spool.guards`). What the spool keeps, and what is
pruned, is in :mod:`connector.spool.retention.pruning`.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from connector.core.changes import Changes, chunks, integers
from connector.core.epoch import SealedEpoch
from connector.core.masking.rules import RulesFingerprint
from connector.core.partitions import CutPartition
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.envelope.envelope import EnvelopeBuilder
from connector.errors import SpoolError, SpoolInUseError, SpoolMismatchError
from connector.spool.cuts import CutWriter, cut_path, version_of
from connector.spool.guards import create_epoch, update
from connector.spool.manifest import (
    CUT_VERSION,
    FUNCTIONS_VERSION,
    PARTS_VERSION,
    VERSION,
    Manifest,
    SegmentFile,
    SourceName,
)
from connector.spool.reading import COLUMNS_VERSION, Spool, SpoolHeader, schema_path, segment_path, to_json
from connector.spool.retention.pruning import SpoolRetention
from connector.spool.segments import SegmentBuffer

WRITER_LOCK = "writer.lock"
"""The file whose lock the daemon holds."""

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of records from which on a record batch of a segment ends."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The point that a spool has reached: its last epoch, the watermark, the cut, and the schemas known there."""

    epoch: int
    watermark: int
    cut: tuple[CutPartition, ...]
    schemas: tuple[TableSchema, ...]


def initialize(
    spool: Spool,
    source: SourceName,
    start: int,
    requested_start: str,
    schemas: Iterable[TableSchema],
    *,
    default_schema: str | None = None,
    placements: Sequence[str] | None = None,
    columns: RulesFingerprint | None = None,
    before: bytes | None = None,
) -> SpoolHeader:
    """Writes the header of a spool without epochs: which stream, since when, and the schemas at the start.

    Args:
        spool: the spool, whose lock is held.
        source: the change stream.
        start: Unix nanoseconds, inclusive, resolved by Spanner's clock.
        requested_start: as it was configured; a restart with the same value does not resolve it again.
        schemas: of the watched tables.
        default_schema: the name in events of the schema of tables without one; None if it is not known.
        placements: those that are read, () for all; None if the stream has one read function alone.
        columns: the rules for columns that are excluded or hashed; None if there are none.
        before: the bytes of the header that this one replaces; the spool keeps its id.

    Raises:
        SpoolInUseError: another daemon has written the header meanwhile.
    """
    known = list(schemas)
    for schema in known:
        spool.storage.put(schema_path(schema.key), schema.to_json())  # who records a backfill writes it, too
    header = SpoolHeader(
        spool_id=SpoolHeader.model_validate_json(before).spool_id if before else secrets.token_hex(8),
        source=source,
        start=start,
        requested_start=requested_start,
        schema_keys={schema.table: schema.key for schema in known},
        default_schema=default_schema,
        placements=None if placements is None else tuple(placements),
        columns=columns,
        version=_version(placements, columns),
    )
    update(spool, "spool.json", before, to_json(header))
    return header


def _version(placements: Sequence[str] | None, columns: RulesFingerprint | None) -> int:
    if columns is not None:
        return COLUMNS_VERSION
    return VERSION if placements is None else FUNCTIONS_VERSION


def checkpoint(spool: Spool, header: SpoolHeader) -> ResumePoint:
    """The point at which to continue reading: after the newest manifest, or the start of a spool that has none.

    Raises:
        SpoolMismatchError: header and manifest belong to different spools.
    """
    latest = spool.latest()
    if latest == 0:
        cut = (CutPartition("", header.start),)
        return ResumePoint(0, header.start - 1, cut, _schemas(spool, header.schema_keys))
    manifest = spool.manifest(latest)
    if manifest.spool_id != header.spool_id:
        raise SpoolMismatchError(
            f"spool.json of {spool.path} is of spool {header.spool_id}, its epoch {latest} of {manifest.spool_id}",
            hint="Two daemons started it at once, or its files were mixed: choose another spool.path.",
        )
    return ResumePoint(
        latest,
        manifest.watermark_high,
        tuple(CutPartition(at.id, at.start_timestamp) for at in spool.cut(manifest)),
        _schemas(spool, manifest.schema_keys),
    )


def _schemas(spool: Spool, keys: Mapping[str, str]) -> tuple[TableSchema, ...]:
    return tuple(spool.schema(key) for key in keys.values())


@contextmanager
def sole_writer(spool: Spool) -> Iterator[None]:
    """Holds the spool's lock for this process.

    Raises:
        SpoolInUseError: another daemon writes it.
    """
    with spool.storage.locked(WRITER_LOCK, f"the spool at {spool.path} is written by another daemon"):
        yield


class SpoolWriter:
    """Seals epochs one after the other; used inside :func:`sole_writer`. Creating it reads what the spool keeps.

    Args:
        spool: the spool.
        header: its header.
        at: where it is.
        envelope: makes rows of records.
        keeps: filters records, after transactions were found complete.
        progress: called with an epoch up to which all that are kept are known, while they are read.

    Attributes:
        epoch: the last epoch that is sealed.
        registry: the schemas known after that epoch; not to be changed during a seal.
        writer: this writer's id, which is part of its files' names.
        retention: knows the epochs that the spool keeps, and prunes the others.

    Raises:
        SpoolError: an epoch that the spool should keep cannot be read.
    """

    def __init__(
        self,
        spool: Spool,
        header: SpoolHeader,
        at: ResumePoint,
        envelope: EnvelopeBuilder,
        keeps: Callable[[Changes], Changes],
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._spool = spool
        self._header = header
        self._envelope = envelope
        self._keeps = keeps
        self.registry = SchemaRegistry(at.schemas)
        self._written = {schema.key for schema in at.schemas}
        self.writer = secrets.token_hex(8)
        self._cuts = CutWriter(spool.storage, self.writer)
        self.epoch = at.epoch
        self.retention = SpoolRetention(spool, self.writer, at.epoch, progress)

    def seal(self, epoch: SealedEpoch, cut: Iterable[CutPartition], *, now: int, final: bool = False) -> Manifest:
        """Makes the next epoch exist, durably, with the checkpoint after it.

        Args:
            epoch: its records: whole transactions up to its ``high``; a record that it lacks is lost.
            cut: the partitions from which reading continues after ``epoch.high``.
            now: Unix nanoseconds.
            final: whether the user's end timestamp is reached.

        Raises:
            SpoolInUseError: another daemon has sealed this epoch.
            SpoolError: the disk refuses; the epoch does not exist then.
        """
        number = self.epoch + 1
        changes = self._keeps(epoch.changes)
        file = self._write_segment(number, changes) if changes.mods else None
        return self._create(
            (file,) if file else (),
            _mods_by_table(changes) if file else {},
            epoch.low,
            epoch.high,
            cut,
            now=now,
            final=final,
        )

    def seal_written(
        self,
        files: Sequence[SegmentFile],
        tables: Mapping[str, int],
        *,
        low: int,
        high: int,
        cut: Iterable[CutPartition],
        now: int,
        final: bool = False,
    ) -> Manifest:
        """Makes the next epoch exist, from segments that others have written; everything else as of :meth:`seal`.

        New schemas are taken from :attr:`registry`, to which the caller has added them in the order of the records.

        Args:
            files: the segments, in the order of their records, ``segments/<epoch>-<writer>-<part>.arrow`` with 20
                digits, this :attr:`writer` and any part. Other segments of this epoch are deleted once it is sealed.
            tables: mods by table.
            low: the epoch holds what was committed after this, Unix nanoseconds,
            high: and up to this, inclusive.
            cut: the partitions from which reading continues after ``high``.
            now: Unix nanoseconds.
            final: whether the user's end timestamp is reached.
        """
        return self._create(files, tables, low, high, cut, now=now, final=final, version=PARTS_VERSION)

    def _create(
        self,
        files: Sequence[SegmentFile],
        tables: Mapping[str, int],
        low: int,
        high: int,
        cut: Iterable[CutPartition],
        *,
        now: int,
        final: bool,
        version: int = VERSION,
    ) -> Manifest:
        number = self.epoch + 1
        for key in self.registry.schemas.keys() - self._written:
            self._spool.storage.put(schema_path(key), self.registry.by_key(key).to_json())
            self._written.add(key)
        starts = {at.token: at.start_timestamp for at in cut}
        tokens, cut_file = self._cuts.placed(number, starts)
        manifest = Manifest(
            version=max(version, CUT_VERSION if cut_file else VERSION, version_of(starts)),
            epoch=number,
            spool_id=self._header.spool_id,
            source=self._header.source,
            watermark_low=low,
            watermark_high=high,
            files=tuple(files),
            tables=dict(tables),
            schema_keys=dict(self.registry.keys),
            cut=tokens,
            cut_file=cut_file,
            final=final,
            writer=self.writer,
            sealed_at=now,
        )
        try:
            size = create_epoch(self._spool, manifest)
        except SpoolInUseError:
            self._delete_files_of(number, files)
            raise
        self.epoch = number
        self.retention.add(manifest, size)
        return manifest

    def _delete_files_of(self, number: int, files: Sequence[SegmentFile]) -> None:
        """Deletes what was written for an epoch that another daemon has sealed, and may have swept already."""
        with suppress(SpoolError):
            paths = (file.path for file in files)
            self._spool.storage.delete(*paths, cut_path(number, self.writer))

    def _write_segment(self, number: int, changes: Changes) -> SegmentFile:
        segment = SegmentBuffer()
        for chunk in chunks(changes, BATCH_BYTES):
            segment.append(self._envelope.build(chunk, self.registry, number))
        path = segment_path(number, self.writer)
        return segment.store(self._spool.storage, path, first=changes.first, last=changes.last)


def _mods_by_table(changes: Changes) -> dict[str, int]:
    codes, schemas = integers(changes.column("record_schema")), changes.record_schemas
    mods = np.bincount(codes, changes.mod_counts, len(schemas)).astype(np.int64)
    tables: Counter[str] = Counter()
    for schema, count in zip(schemas, mods.tolist(), strict=True):
        tables[schema.table_name] += count
    return {table: count for table, count in tables.items() if count}
