"""Brings a trouble into a process, by patches from outside: the product has no hooks for it."""

import errno
import os
import stat
import time
from pathlib import Path

import pyarrow as pa

import connector.commands.spool_sink
import connector.decoding.decoder
import connector.spanner.partition_query
import connector.spool.cuts
import connector.spool.summaries
from connector.core.epoch import Epoch
from connector.core.partitions import CutPartition
from connector.spool import consumers
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from connector.spool.retention import PRUNE_GRACE, Retention
from connector.spool.writing import SpoolWriter
from connector.storage.local import LocalStore
from connector.storage.local_files import LocalFile
from tests.soak.faults import clock
from tests.soak.faults.fault import Points, Trouble, mark

FULL = "the disk is full"
STILL = "the clock stood still"
SINK_FULL = "the sink's disk is full"
_KINDS = {
    "segments": "a segment",
    "manifests": "a manifest",
    "schemas": "a schema",
    "cuts": "a cut file",
    "summaries": "a summary",
    "spool.json": "the header",
}


def set_clock(trouble: Trouble) -> None:
    """The clock steps, and stands still."""
    told: set[int] = set()

    def tell(number: int) -> None:
        if number not in told:
            told.add(number)
            mark(trouble, STILL if number == clock.STILL else f"clock step {number}")

    if trouble.steps or trouble.still:
        clock.set_by(trouble.steps, tell, trouble.still)


def trouble_disk(trouble: Trouble, *, full_at: int, name: str) -> None:
    """A disk that takes its time to sync, and that is full at one file."""
    sync = os.fsync
    files = 0

    def fsync(descriptor: int) -> None:
        nonlocal files
        time.sleep(trouble.sync_seconds)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            files += 1
            if files == full_at:
                mark(trouble, name)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    os.fsync = fsync  # type: ignore[assignment]


def kill_in_storage(points: Points) -> None:
    """The points of a file's life in the spool."""
    write, create, replace, link = LocalStore._write, LocalStore.create, LocalStore.replace, os.link

    def troubled_write(self: LocalStore, path: str, data: bytes | pa.Buffer) -> LocalFile:
        if points.is_next(f"in the middle of {_kind(path)}"):
            half = memoryview(data)[: len(memoryview(data)) // 2]
            (self._folder(path) / ".half-written.tmp").write_bytes(half)
            points.die()
        return write(self, path, data)

    def troubled_link(source: Path, target: Path) -> None:
        of_manifest = target.parent.name == "manifests"
        if of_manifest:
            points.reached("before the link of a manifest")
        link(source, target)
        if of_manifest:
            points.reached("after the link of a manifest")

    def troubled_create(self: LocalStore, path: str, data: bytes | pa.Buffer) -> None:
        if path in ("spool.json", "floor.json"):
            _before(points, path)
        create(self, path, data)
        _after(points, path)

    def troubled_replace(self: LocalStore, path: str, data: bytes | pa.Buffer, *, version: str | None = None) -> None:
        if version is not None:  # which replaces without one, once it has compared
            replace(self, path, data, version=version)
            return
        _before(points, path)
        replace(self, path, data)
        _after(points, path)

    LocalStore._write = troubled_write  # type: ignore[method-assign]
    LocalStore.create = troubled_create  # type: ignore[method-assign]
    LocalStore.replace = troubled_replace  # type: ignore[method-assign]
    connector.storage.local_files.os.link = troubled_link  # type: ignore[attr-defined]


def _before(points: Points, path: str) -> None:
    points.reached(f"before {_kind(path)}" if path != "floor.json" else "before a prune")


def _after(points: Points, path: str) -> None:
    points.reached("after a segment, before its manifest" if "segments" in path else f"after {_kind(path)}")
    if path == "floor.json":
        points.reached("after the floor, before its epochs are deleted")


def kill_in_writer(points: Points, *, prunes: bool) -> None:
    """The points of a writer's work that are more than one file."""
    seal, prune, sweep, delete = SpoolWriter.seal, SpoolWriter.prune, Retention._sweep, LocalStore.delete
    doing = "nothing"

    def troubled_delete(self: LocalStore, *paths: str) -> None:
        for path in paths:
            delete(self, path)
            points.reached(f"in the middle of {doing}")

    def troubled_prune(self: SpoolWriter, *, now: int, grace: int = PRUNE_GRACE) -> int:
        nonlocal doing
        doing = "a prune"
        pruned = prune(self, now=now, grace=0 if prunes else grace)
        if pruned:
            points.reached("after a prune")
        return pruned

    def troubled_sweep(self: Retention) -> None:
        nonlocal doing
        points.reached("before the sweep")
        doing = "the sweep"
        sweep(self)
        points.reached("after the sweep")

    def troubled_seal(
        self: SpoolWriter, epoch: Epoch, cut: list[CutPartition], *, now: int, final: bool = False
    ) -> Manifest:
        if final:
            points.reached("before the last epoch")
        sealed = seal(self, epoch, cut, now=now, final=final)
        if final:
            points.reached("after the last epoch")
        return sealed

    LocalStore.delete = troubled_delete  # type: ignore[method-assign]
    SpoolWriter.prune = troubled_prune  # type: ignore[method-assign]
    Retention._sweep = troubled_sweep  # type: ignore[method-assign]
    SpoolWriter.seal = troubled_seal  # type: ignore[assignment,method-assign]


def kill_at_progress(points: Points) -> None:
    """The points of a consumer's progress."""
    record = consumers.record

    def troubled_record(spool: Spool, name: str, epoch: int, *, now: int, at: str = "") -> consumers.Consumer:
        points.reached("before progress is recorded")
        recorded = record(spool, name, epoch, now=now, at=at)
        points.reached("after progress is recorded")
        return recorded

    consumers.record = troubled_record


def hurry() -> None:
    """What waits for long in the daemon waits for less, lest a seed take minutes: the server's time runs faster."""
    connector.spanner.partition_query.SILENT_AT_LEAST = 2 * 10**9
    connector.spanner.partition_query.SILENT_HEARTBEATS = 1
    connector.commands.spool_sink.PRUNE_INTERVAL = 0.2


def take_cut_files(trouble: Trouble) -> None:
    """Whether cuts have files of their own however small they are."""
    if trouble.cut_files:
        connector.spool.cuts.INLINE = 1
        connector.spool.summaries.BLOCK = 8


def take_columns(trouble: Trouble) -> None:
    """Whether the fast decoders take rows however few they are."""
    if trouble.columns:
        connector.decoding.decoder.FEW = 0


def _kind(path: str) -> str:
    return _KINDS.get(path.partition("/")[0], path)
