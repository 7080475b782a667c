"""Seals epochs into a spool: the one writer, its atomic manifests, and the pruning of what was consumed.

A seal writes the segment, then any new schema, then creates the manifest: only the last makes the epoch exist. The
spool's lock keeps a second daemon of this machine out; the manifest, which is created and never overwritten, keeps
out one that the lock does not reach. The header and the floor are written only in place of what was read. Segments
that a killed writer left without a manifest are deleted after this writer's own first seal, for until then the other
may still be alive.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from connector import consumers
from connector.changes import Changes, integers
from connector.envelope import SCHEMA, EnvelopeBuilder
from connector.epoch import Epoch
from connector.errors import SpoolInUseError, SpoolMismatchError
from connector.manifest import CutToken, Manifest, SegmentFile, SourceName, crc32c
from connector.partitions import CutPartition
from connector.schemas import SchemaRegistry, TableSchema
from connector.spool import Spool, SpoolHeader, manifest_path, schema_path, to_json
from connector.storage import contents
from connector.timestamps import SECOND

PRUNE_GRACE = 60 * SECOND
"""How long an epoch that every consumer has passed is kept, for replays under way."""

PRUNE_AT_ONCE = 500
"""Epochs that are deleted at a time: sealing waits meanwhile, and object storage takes its time."""

BATCH_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a spool is: its last epoch, the watermark, the cut there, and the schemas known there."""

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
    before: bytes | None = None,
) -> SpoolHeader:
    """Writes the header of a spool that has no epochs: which stream, since when, and the schemas at the start.

    Args:
        spool: the spool, whose lock is held.
        source: the change stream.
        start: nanoseconds since the epoch, inclusive, resolved by Spanner's clock.
        requested_start: as it was configured; a restart with the same does not resolve it again.
        schemas: of the watched tables.
        before: the header's file that this one replaces, as it was read; the spool stays the same.

    Raises:
        SpoolInUseError: another daemon has written the header meanwhile.
    """
    known = list(schemas)
    for schema in known:
        spool.storage.replace(schema_path(schema.key), schema.to_json())
    header = SpoolHeader(
        spool_id=SpoolHeader.model_validate_json(before).spool_id if before else secrets.token_hex(8),
        source=source,
        start=start,
        requested_start=requested_start,
        schema_keys={schema.table: schema.key for schema in known},
    )
    _update(spool, "spool.json", before, to_json(header))
    return header


def checkpoint(spool: Spool, header: SpoolHeader) -> Checkpoint:
    """Where to read on: after the newest manifest, or from the start of a spool that has none.

    Raises:
        SpoolMismatchError: header and manifest are of two spools.
    """
    latest = spool.latest()
    if latest == 0:
        cut = (CutPartition("", header.start),)
        return Checkpoint(0, header.start - 1, cut, _schemas(spool, header.schema_keys))
    manifest = spool.manifest(latest)
    if manifest.spool_id != header.spool_id:
        raise SpoolMismatchError(
            f"spool.json of {spool.path} is of spool {header.spool_id}, its epoch {latest} of {manifest.spool_id}",
            hint="Two daemons began it at once, or its files were mixed: choose another spool.path.",
        )
    return Checkpoint(
        latest,
        manifest.watermark_high,
        tuple(CutPartition(at.token, at.start_timestamp) for at in manifest.cut),
        _schemas(spool, manifest.schema_keys),
    )


def _schemas(spool: Spool, keys: Mapping[str, str]) -> tuple[TableSchema, ...]:
    return tuple(spool.schema(key) for key in keys.values())


@contextmanager
def sole_writer(spool: Spool) -> Iterator[None]:
    """Holds the spool for this process.

    Raises:
        SpoolInUseError: another daemon writes it.
    """
    with spool.storage.locked("writer.lock", f"the spool at {spool.path} is written by another daemon"):
        yield


class SpoolWriter:
    """Seals epochs one after the other; used inside :func:`sole_writer`.

    Args:
        spool: the spool.
        header: its header.
        at: where it is.
        envelope: makes rows of records.
        keeps: leaves out records that are not written, asked after transactions are complete.
    """

    def __init__(
        self,
        spool: Spool,
        header: SpoolHeader,
        at: Checkpoint,
        envelope: EnvelopeBuilder,
        keeps: Callable[[Changes], Changes],
    ) -> None:
        self._spool = spool
        self._header = header
        self._envelope = envelope
        self._keeps = keeps
        self.registry = SchemaRegistry(at.schemas)
        """The schemas as known after the last epoch; not to be touched while one is sealed."""
        self._written = {schema.key for schema in at.schemas}
        self._writer = secrets.token_hex(8)
        self._swept = False
        self._floor = contents(spool.storage, "floor.json")
        self._floor_set_at = 0
        self.epoch = at.epoch
        """The last epoch that is sealed."""
        self._sealed: dict[int, tuple[int, int]] = {}
        for manifest in spool.manifests(spool.floor(), at.epoch):
            self._sealed[manifest.epoch] = (manifest.size, manifest.sealed_at)
        self.bytes = sum(size for size, _ in self._sealed.values())
        """Bytes of all segments that are kept; may be read while another thread seals or prunes."""

    def seal(self, epoch: Epoch, cut: Iterable[CutPartition], *, now: int, final: bool = False) -> Manifest:
        """Makes the next epoch exist, durably, with the checkpoint after it.

        Args:
            epoch: its records; what it leaves out is lost, so they are whole transactions up to its ``high``.
            cut: the partitions to go on from after ``epoch.high``.
            now: nanoseconds since the epoch.
            final: whether the user's end timestamp is reached.

        Raises:
            SpoolInUseError: another daemon has sealed this epoch.
            SpoolError: the disk refuses; the epoch does not exist then.
        """
        number = self.epoch + 1
        kept = self._keeps(epoch.changes)
        file = self._write_segment(number, kept) if kept.mods else None
        for key in self.registry.schemas.keys() - self._written:
            self._spool.storage.replace(schema_path(key), self.registry.by_key(key).to_json())
            self._written.add(key)
        manifest = Manifest(
            epoch=number,
            spool_id=self._header.spool_id,
            source=self._header.source,
            watermark_low=epoch.low,
            watermark_high=epoch.high,
            files=(file,) if file else (),
            tables=_mods_by_table(kept) if file else {},
            schema_keys=dict(self.registry.keys),
            cut=tuple(CutToken(token=at.token, start_timestamp=at.start_timestamp) for at in cut),
            final=final,
            writer=self._writer,
            sealed_at=now,
        )
        create(self._spool, manifest)
        self.epoch = number
        self._sealed[number] = (manifest.size, now)
        self.bytes += manifest.size
        if not self._swept:
            self._sweep()
        return manifest

    def prune(self, *, now: int, grace: int = PRUNE_GRACE) -> int:
        """Deletes epochs that every consumer has passed, ``grace`` nanoseconds after their seal.

        The newest epoch stays, and everything stays while no consumer is known. Returns how many were deleted.

        Raises:
            SpoolInUseError: another daemon has pruned what this one takes for kept.
        """
        pause = int(self._spool.storage.rewrite_interval * SECOND)
        if abs(now - self._floor_set_at) < pause:
            return 0
        known = consumers.consumers(self._spool)
        if not known:
            return 0
        passed = min(consumer.epoch for consumer in known)
        first = min(self._sealed, default=1)
        if self._spool.floor() > first:
            raise _gone_on(self._spool)
        last = first - 1
        most = min(passed, self.epoch - 1, last + PRUNE_AT_ONCE)
        # A clock that was set back has epochs sealed in its future: it must not keep them for as long.
        while last < most and abs(now - self._sealed[last + 1][1]) >= grace:
            last += 1
        if last < first:
            return 0
        self._set_floor(last + 1)
        self._floor_set_at = now
        if any(consumer.epoch < last for consumer in consumers.consumers(self._spool)):
            # One has registered meanwhile, perhaps without having seen the new floor: it keeps what it was promised.
            self._set_floor(first)
            return 0
        pruned = list(self._spool.manifests(first, last))
        self._spool.storage.delete(*(file.path for manifest in pruned for file in manifest.files))
        self._spool.storage.delete(*(manifest_path(manifest.epoch) for manifest in pruned))
        self.bytes -= sum(self._sealed.pop(manifest.epoch)[0] for manifest in pruned)
        return len(pruned)

    def _set_floor(self, first: int) -> None:
        # The writer's name in it makes it no other's: what was read back may be ours, whose answer was lost.
        data = b'{"version":1,"first":%d,"writer":"%s"}' % (first, self._writer.encode())
        _update(self._spool, "floor.json", self._floor, data)
        self._floor = data

    def _write_segment(self, number: int, changes: Changes) -> SegmentFile:
        sink = pa.BufferOutputStream()
        rows = 0
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(sink, SCHEMA, options=options) as writer:
            for chunk in _chunks(changes):
                batch = self._envelope.build(chunk, self.registry, number)
                rows += batch.num_rows
                writer.write_batch(batch)
        data = sink.getvalue()
        path = f"segments/{number:020d}-{self._writer}.arrow"
        self._spool.storage.replace(path, data)
        return SegmentFile(
            path=path,
            rows=rows,
            bytes=data.size,
            crc32c=crc32c(data),
            first_commit_timestamp=changes.first,
            last_commit_timestamp=changes.last,
        )

    def _sweep(self) -> None:
        self._swept = True
        for folder in ("segments", "manifests", "schemas"):  # not consumers: those have writers of their own
            self._spool.storage.sweep(folder)
        floor = self._spool.floor()
        names = self._spool.storage.list("manifests")
        pruned = [name for name in names if name[:-5].isdecimal() and int(name[:-5]) < floor]
        self._spool.storage.delete(*(f"manifests/{name}" for name in pruned))
        kept = self._spool.manifests(min(self._sealed), self.epoch)
        listed = {file.path for manifest in kept for file in manifest.files}
        found = [f"segments/{name}" for name in self._spool.storage.list("segments")]
        after = f"segments/{self.epoch + 1:020d}"  # what another writer may have sealed since
        self._spool.storage.delete(*(path for path in found if path < after and path not in listed))


def create(spool: Spool, manifest: Manifest) -> None:
    """Makes the manifest's epoch exist, durably; its files and schemas must do so already.

    Raises:
        SpoolInUseError: another daemon has sealed this epoch.
        SpoolError: the disk refuses; the epoch does not exist then.
    """
    data = manifest.to_json()
    path = manifest_path(manifest.epoch)
    try:
        spool.storage.create(path, data)
    except FileExistsError:
        # A create whose answer was lost is our own; anything else is another daemon's.
        if spool.storage.read(path).to_pybytes() != data:
            raise SpoolInUseError(
                f"another daemon has sealed epoch {manifest.epoch} of the spool at {spool.path}",
                hint="Only one may write a spool: stop the other, or choose another spool.path.",
            ) from None
    if spool.floor() > manifest.epoch:
        spool.storage.delete(path)
        raise _gone_on(spool)


def _update(spool: Spool, path: str, before: bytes | None, data: bytes) -> None:
    try:
        spool.storage.update(path, before, data)
    except FileExistsError:
        raise _gone_on(spool) from None


def _gone_on(spool: Spool) -> SpoolInUseError:
    return SpoolInUseError(f"the spool at {spool.path} has gone on without this daemon")


def _mods_by_table(changes: Changes) -> dict[str, int]:
    mods = np.bincount(integers(changes.column("shape")), changes.mod_counts, len(changes.shapes)).astype(np.int64)
    tables: Counter[str] = Counter()
    for shape, count in zip(changes.shapes, mods.tolist(), strict=True):
        tables[shape.table_name] += count
    return {table: count for table, count in tables.items() if count}


def _chunks(changes: Changes) -> Iterator[Changes]:
    """Parts that end with the record that makes them as large as a batch is to be."""
    ends = np.cumsum(changes.sizes)
    start, before = 0, 0
    while start < len(changes):
        stop = min(int(np.searchsorted(ends, before + BATCH_BYTES)) + 1, len(changes))
        yield changes.part(start, stop)
        start, before = stop, int(ends[stop - 1])
