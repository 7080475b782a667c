"""Seals a backfill's epochs, each a partition of a table, and deletes the segments that every consumer has passed.

Epochs get their numbers in advance, because rows hold the number of their epoch. A wave of partitions is read into
segments with names of their own, and then sealed in order. Segments that no manifest lists were left by a killed
process. They are deleted after the next one's first seal, up to that epoch, because until then the other may still be
alive; and when the backfill is done. Manifests are never deleted: they say what has been read.
"""

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from connector.errors import SpoolError, SpoolInUseError
from connector.spool import consumers
from connector.spool.backfill.documents import Backfill, BackfillProgress, PartitionPlan, TableProgress, TableState
from connector.spool.backfill.records import find
from connector.spool.guards import create_epoch, update
from connector.spool.manifest import BackfillPart, Manifest, SegmentFile
from connector.spool.reading import Spool, SpoolHeader, epoch_of_segment, manifest_path
from connector.spool.storage.store import contents
from connector.spool.writing import sole_writer


@dataclass(frozen=True, slots=True)
class SealedPart:
    """A partition that is in the spool, as its manifest says."""

    epoch: int
    part: BackfillPart
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Remaining:
    """A partition that is still to be read; ``table`` is the table's index in the backfill."""

    table: int
    part: BackfillPart


class BackfillWriter:
    """Seals the epochs of a backfill. The caller holds the lock of its spool.

    Creating it reads all manifests.

    Args:
        own: the backfill's spool.
        header: its header.
        document: the backfill.

    Raises:
        SpoolError: a manifest is corrupt, or the disk refuses.
    """

    def __init__(self, own: Spool, header: SpoolHeader, document: Backfill) -> None:
        self._own = own
        self._header = header
        self._document = document
        self._writer = secrets.token_hex(8)
        self._schema_keys = {table.table: table.schema_key for table in document.tables}
        self._floor = contents(own.storage, "floor.json")
        self._kept: dict[int, tuple[SegmentFile, ...]] = {}
        self._passed = 0
        self._left: list[str] | None = None
        """Segments of other writers that no manifest listed before this writer's first seal."""
        self.sealed: list[SealedPart] = []
        for manifest in self._manifests():
            self._add(manifest)
        self._omit_deleted()

    def _manifests(self) -> Iterator[Manifest]:
        last = max((int(name[:-5]) for name in self._own.storage.list("manifests")), default=0)
        paths = [manifest_path(epoch) for epoch in range(1, last + 1)]
        for path, data in zip(paths, self._own.storage.read_each(paths), strict=True):
            yield Manifest.from_json(data.to_pybytes(), path)

    def _add(self, manifest: Manifest) -> None:
        if manifest.backfill is None:
            raise SpoolError(f"epoch {manifest.epoch} of {self._own.path} is not of a backfill")
        self.sealed.append(SealedPart(manifest.epoch, manifest.backfill, manifest.rows, manifest.size))
        if manifest.files:
            self._kept[manifest.epoch] = manifest.files

    def sweep(self) -> None:
        """Deletes the segments that no manifest lists; only while no task writes.

        Raises:
            SpoolError: the disk refuses.
        """
        self._omit_deleted()
        self._own.storage.delete(*self._unlisted())

    def _omit_deleted(self) -> None:
        """Omits the segments of epochs below the floor, whatever a killed process has left of them."""
        first = self._own.floor()
        self._kept = {epoch: files for epoch, files in self._kept.items() if epoch >= first}

    def _unlisted(self) -> list[str]:
        """The segments that no manifest lists; deletes unfinished files, which are listed nowhere."""
        storage = self._own.storage
        storage.sweep("segments")
        storage.sweep("manifests")
        listed = {file.path for files in self._kept.values() for file in files}
        found = (f"segments/{name}" for name in storage.list("segments"))
        return [path for path in found if path not in listed]

    def _discard_left(self) -> None:
        """Deletes what other writers have left of the epochs that are sealed: of these they can seal none any more."""
        if self._left is None:
            self._left = self._unlisted()
        listed = {file.path for file in self._kept.get(self.epoch, ())}
        passed = {path for path in self._left if 0 < epoch_of_segment(path) <= self.epoch}
        self._own.storage.delete(*(passed - listed))
        self._left = [path for path in self._left if path not in passed]

    @property
    def epoch(self) -> int:
        """The last epoch that is sealed, or 0."""
        return self.sealed[-1].epoch if self.sealed else 0

    def seal(self, part: BackfillPart, files: Sequence[SegmentFile], *, now: int) -> Manifest:
        """Makes the next epoch exist, durably: all rows of a partition.

        Raises:
            SpoolInUseError: another process has sealed this epoch.
            SpoolError: the disk refuses. Another writer says whether the epoch exists.
        """
        at, number = self._document.timestamp, self.epoch + 1
        rows = sum(file.rows for file in files)
        manifest = Manifest(
            epoch=number,
            spool_id=self._header.spool_id,
            source=self._header.source,
            watermark_low=at - 1 if number == 1 else at,
            watermark_high=at,
            files=tuple(files),
            tables={part.table: rows} if rows else {},
            schema_keys=self._schema_keys,
            cut=(),
            backfill=part,
            writer=self._writer,
            sealed_at=now,
        )
        create_epoch(self._own, manifest)
        self._add(manifest)
        self._discard_left()
        return manifest

    @property
    def undelivered_bytes(self) -> int:
        """Bytes of the segments that the sink or another consumer has not passed, as the last prune found."""
        waiting = (files for epoch, files in self._kept.items() if epoch > self._passed)
        return sum(file.bytes for files in waiting for file in files)

    def prune(self, sink: str) -> int:
        """Deletes the segments of epochs that all consumers have passed; returns the last epoch that all have passed.

        The newest epoch stays. Everything stays until the sink, whose name is ``sink``, has registered: a query of a
        user's own may have read all before that.

        Raises:
            SpoolInUseError: another process has pruned this spool.
        """
        self._passed = self._passed_by_all(sink)
        last = min(self._passed, self.epoch - 1)
        deleted = [epoch for epoch in self._kept if epoch <= last]
        if deleted:
            first = self._own.floor()
            self._set_floor(last + 1)
            self._passed = self._passed_by_all(sink)
            if self._passed < last:
                # One has registered meanwhile, perhaps before it saw the new floor: it keeps what it was promised.
                self._set_floor(first)
                return self._passed
            files = chain.from_iterable(self._kept.pop(epoch) for epoch in deleted)
            self._own.storage.delete(*(file.path for file in files))
        return self._passed

    def _passed_by_all(self, sink: str) -> int:
        """The last epoch that all consumers have passed; 0 until the sink has registered."""
        known = {consumer.consumer: consumer.epoch for consumer in consumers.consumers(self._own)}
        return min(known.values()) if sink in known else 0

    def _set_floor(self, first: int) -> None:
        data = b'{"version":1,"first":%d,"writer":"%s"}' % (first, self._writer.encode())
        update(self._own, "floor.json", self._floor, data)
        self._floor = data


def discard_continued(spool: Spool, document: Backfill, sinks: Collection[str]) -> None:
    """Deletes the segments of the backfills that this one continues: their rows are read again, and not delivered.

    Those of a backfill that has a consumer beside ``sinks`` are kept, and of one that another process holds.

    Raises:
        SpoolError: a document is corrupt, or the disk refuses.
    """
    number = document.continues
    while number and (one := find(spool, number)) is not None:
        storage = one.spool.storage
        with suppress(SpoolInUseError), sole_writer(one.spool):
            if all(known.consumer in sinks for known in consumers.consumers(one.spool)):
                storage.delete(*(f"segments/{name}" for name in storage.list("segments")))
        number = one.document.continues


def remaining(
    document: Backfill, plans: Mapping[str, PartitionPlan], sealed: Iterable[SealedPart]
) -> tuple[list[int], list[Remaining]]:
    """The partitions of a backfill that are still to be read. Pure.

    Returns:
        The indexes of the tables without a plan, and the partitions, table by table, that are not sealed.
    """
    done = {(one.part.table, one.part.plan, one.part.partition) for one in sealed}
    unplanned, left = [], []
    for index, table in enumerate(document.tables):
        plan = plans.get(table.table)
        if plan is None:
            unplanned.append(index)
            continue
        for partition in range(len(plan.partitions)):
            if (plan.table, plan.plan, partition) not in done:
                part = BackfillPart(table=plan.table, plan=plan.plan, partition=partition)
                left.append(Remaining(index, part))
    return unplanned, left


def progress(
    document: Backfill,
    plans: Mapping[str, PartitionPlan],
    sealed: Sequence[SealedPart],
    *,
    delivered: int,
    now: int,
    failure: str = "",
    failing: Collection[str] | None = None,
    lost: bool = False,
) -> BackfillProgress:
    """The state of each table. Pure.

    Args:
        document: the backfill.
        plans: of its tables.
        sealed: the partitions that are in the spool.
        delivered: the last epoch that the sink is done with.
        now: Unix nanoseconds.
        failure: why tables that are not read completely cannot be read at present.
        failing: the tables that it is about; None for all.
        lost: whether they cannot be read at this timestamp any more.
    """
    by_table: dict[str, list[SealedPart]] = {}
    for one in sealed:
        by_table.setdefault(one.part.table, []).append(one)
    tables = []
    for table in document.tables:
        plan = plans.get(table.table)
        parts = by_table.get(table.table, [])
        own = [one for one in parts if plan and one.part.plan == plan.plan]
        planned = len(plan.partitions) if plan else 0
        is_read = plan is not None and len(own) == planned
        last = max((one.epoch for one in parts), default=0)
        state: TableState = "reading" if own else "planned"
        if is_read:
            state = "done" if last <= delivered else "read"
        elif failure and (failing is None or table.table in failing):
            state = "failed"
        tables.append(
            TableProgress(
                table=table.table,
                state=state,
                partitions=len(own),
                planned=planned,
                rows=sum(one.rows for one in own),
                bytes=sum(one.bytes for one in own),
                why=failure if state == "failed" else "",
            )
        )
    return BackfillProgress(updated=now, tables=tuple(tables), lost=lost)
