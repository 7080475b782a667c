"""Seals epochs into a spool: the one writer, its atomic manifests, and the pruning of what was consumed.

A seal writes the segment, then any new schema, then a large cut, then creates the manifest: only the last makes the
epoch exist. The spool's lock keeps a second daemon of this machine out; the manifest, which is created and never
overwritten, keeps out one that the lock does not reach. The header and the floor are written only in place of what
was read. Segments and cuts that a killed writer left without a manifest are deleted after this writer's own first
seal, for until then the other may still be alive. They are looked for among the newest epochs: those before were swept
when their block was summarized (:mod:`connector.spool.summaries`).
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from connector.core.changes import Changes, integers
from connector.core.epoch import Epoch
from connector.core.partitions import CutPartition
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.core.timestamps import SECOND
from connector.envelope.envelope import SCHEMA, EnvelopeBuilder
from connector.errors import SpoolError, SpoolInUseError, SpoolMismatchError
from connector.spool import consumers
from connector.spool.cuts import CutWriter, cut_path
from connector.spool.kept import KeptEpochs
from connector.spool.manifest import CUT_VERSION, VERSION, Manifest, SegmentFile, SourceName, crc32c
from connector.spool.reading import Spool, SpoolHeader, manifest_path, schema_path, segment_path, to_json
from connector.spool.summaries import EpochSummary, block_end, block_path, blocks_between, in_short, to_block
from connector.storage.local import contents

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
        tuple(CutPartition(at.token, at.start_timestamp) for at in spool.cut(manifest)),
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
    """Seals epochs one after the other; used inside :func:`sole_writer`. Made, it has read what the spool keeps.

    Args:
        spool: the spool.
        header: its header.
        at: where it is.
        envelope: makes rows of records.
        keeps: leaves out records that are not written, asked after transactions are complete.
        progress: told how many epochs are known, while those that the spool keeps are read.

    Raises:
        SpoolError: an epoch that the spool should keep cannot be read.
    """

    def __init__(
        self,
        spool: Spool,
        header: SpoolHeader,
        at: Checkpoint,
        envelope: EnvelopeBuilder,
        keeps: Callable[[Changes], Changes],
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._spool = spool
        self._header = header
        self._envelope = envelope
        self._keeps = keeps
        self.registry = SchemaRegistry(at.schemas)
        """The schemas as known after the last epoch; not to be touched while one is sealed."""
        self._written = {schema.key for schema in at.schemas}
        self._writer = secrets.token_hex(8)
        self._cuts = CutWriter(spool.storage, self._writer)
        self._is_first = True
        self._floor = contents(spool.storage, "floor.json")
        self._floor_set_at = 0
        self.epoch = at.epoch
        """The last epoch that is sealed."""
        self.strays: tuple[str, ...] = ()
        """Consumers that were done with epochs of another copy of this spool, as the last prune has found."""
        self._kept = KeptEpochs()
        self._blocks: set[int] = set()
        self._swept = spool.floor() - 1
        self._know_kept(progress)

    @property
    def bytes(self) -> int:
        """Bytes of all that the epochs which are kept have written.

        May be read while another thread seals or prunes.
        """
        return self._kept.bytes

    def _know_kept(self, progress: Callable[[int], None]) -> None:
        for run in self._spool.runs(self._swept + 1, self.epoch):
            for one in run.epochs:
                self._kept.add(in_short(one) if run.of_block else one)
            last = run.epochs[-1].epoch
            if run.of_block:
                self._blocks.add(last)
                if run.epochs[0].epoch == self._swept + 1:
                    self._swept = last
            progress(last)

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
        tokens, cut_file = self._cuts.placed(number, {at.token: at.start_timestamp for at in cut})
        manifest = Manifest(
            version=CUT_VERSION if cut_file else VERSION,
            epoch=number,
            spool_id=self._header.spool_id,
            source=self._header.source,
            watermark_low=epoch.low,
            watermark_high=epoch.high,
            files=(file,) if file else (),
            tables=_mods_by_table(kept) if file else {},
            schema_keys=dict(self.registry.keys),
            cut=tokens,
            cut_file=cut_file,
            final=final,
            writer=self._writer,
            sealed_at=now,
        )
        try:
            size = create(self._spool, manifest)
        except SpoolInUseError:
            self._take_back(number)
            raise
        self.epoch = number
        self._kept.add(EpochSummary.of(manifest, size))
        if self._is_first or number == block_end(number):
            self._sweep()
        return manifest

    def _take_back(self, number: int) -> None:
        """Deletes what was written for an epoch that another has sealed, and may have swept already."""
        with suppress(SpoolError):
            paths = (segment_path(number, self._writer), cut_path(number, self._writer))
            self._spool.storage.delete(*paths)

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
        first = self._kept.first
        if self._spool.floor() > first:
            raise _gone_on(self._spool)
        self.strays = tuple(one.consumer for one in known if self._is_stray(one))
        if self.strays:
            return 0
        last = first - 1
        most = min(*(consumer.epoch for consumer in known), self.epoch - 1, last + PRUNE_AT_ONCE)
        # A clock that was set back has epochs sealed in its future: it must not keep them for as long.
        while last < most and abs(now - self._kept[last + 1].sealed_at) >= grace:
            last += 1
        if last < first:
            return 0
        self._set_floor(last + 1)
        self._floor_set_at = now
        if any(consumer.epoch < last for consumer in consumers.consumers(self._spool)):
            # One has registered meanwhile, perhaps without having seen the new floor: it keeps what it was promised.
            self._set_floor(first)
            return 0
        pruned = self._kept.between(range(first, last + 1))
        self._kept.drop(pruned)
        self._delete(pruned)
        return len(pruned)

    def _is_stray(self, consumer: consumers.Consumer) -> bool:
        """Whether what a consumer is done with is not what this spool holds: then it still needs the latter."""
        one = self._kept.find(consumer.epoch)
        return consumer.epoch > self.epoch or (one is not None and consumer.at not in ("", one.identity))

    def _delete(self, pruned: Sequence[EpochSummary]) -> None:
        """Deletes the files of epochs that are below the floor, and forgotten."""
        cuts = {one.cut_path: None for one in pruned if one.cut_path and not self._kept.refers_to_cut(one.cut_path)}
        blocks = {end for one in pruned if (end := block_end(one.epoch)) == one.epoch}
        self._blocks -= blocks
        delete = self._spool.storage.delete
        delete(*(segment_path(one.epoch, one.writer) for one in pruned if one.files), *cuts)
        delete(*(manifest_path(one.epoch) for one in pruned), *(block_path(end) for end in sorted(blocks)))

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
        path = segment_path(number, self._writer)
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
        """Deletes what has no epoch, up to the newest, and summarizes the blocks that are whole."""
        storage = self._spool.storage
        if self._is_first:
            self._is_first = False
            # Not consumers: those have writers of their own.
            for folder in ("segments", "manifests", "schemas", "cuts", "summaries"):
                storage.sweep(folder)
            self._sweep_below(self._spool.floor())
        between = f"{self._swept + 1:020d}", f"{self.epoch + 1:020d}"  # after it is what another may have sealed since
        segments = [f"segments/{name}" for name in storage.list("segments", *between) if not self._needs(name)]
        cuts = [f"cuts/{name}" for name in storage.list("cuts", *between)]
        storage.delete(*segments, *(path for path in cuts if not self._kept.refers_to_cut(path)))
        for block in blocks_between(self._kept.first, self.epoch):
            if block[-1] not in self._blocks:
                storage.replace(block_path(block[-1]), to_block(self._kept.between(block)))
                self._blocks.add(block[-1])
                self._kept.shorten(block)
            self._swept = max(self._swept, block[-1])

    def _sweep_below(self, floor: int) -> None:
        """Deletes what lies below the floor: of a writer that was killed while it pruned, or that woke up late."""
        storage, end = self._spool.storage, f"{floor:020d}"
        for folder in ("segments", "cuts", "manifests", "summaries"):
            paths = [f"{folder}/{name}" for name in storage.list(folder, end=end)]
            storage.delete(*(path for path in paths if not self._kept.refers_to_cut(path)))

    def _needs(self, segment: str) -> bool:
        number, _, writer = segment.removesuffix(".arrow").partition("-")
        return number.isdecimal() and self._kept.has_segment(int(number), writer)


def create(spool: Spool, manifest: Manifest) -> int:
    """Makes the manifest's epoch exist, durably; its files and schemas must do so already. Returns its bytes.

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
    return len(data)


def _update(spool: Spool, path: str, before: bytes | None, data: bytes) -> None:
    try:
        spool.storage.update(path, before, data)
    except FileExistsError:
        raise _gone_on(spool) from None


def _gone_on(spool: Spool) -> SpoolInUseError:
    return SpoolInUseError(f"the spool at {spool.path} has gone on without this daemon")


def _mods_by_table(changes: Changes) -> dict[str, int]:
    codes, schemas = integers(changes.column("record_schema")), changes.record_schemas
    mods = np.bincount(codes, changes.mod_counts, len(schemas)).astype(np.int64)
    tables: Counter[str] = Counter()
    for schema, count in zip(schemas, mods.tolist(), strict=True):
        tables[schema.table_name] += count
    return {table: count for table, count in tables.items() if count}


def _chunks(changes: Changes) -> Iterator[Changes]:
    """Parts that end with the record that makes them as large as a batch is to be."""
    ends = np.cumsum(changes.sizes)
    start, before = 0, 0
    while start < len(changes):
        stop = min(int(np.searchsorted(ends, before + BATCH_BYTES)) + 1, len(changes))
        yield changes.part(start, stop)
        start, before = stop, int(ends[stop - 1])
