"""Injects faults into a process by patching the product, which has no hooks for them."""

import errno
import os
import stat
import time
from pathlib import Path

import pyarrow as pa

import connector.core.health.retries
import connector.daemon.spool_sink
import connector.daemon.states.watching
import connector.spanner.decoding.decoder
import connector.spanner.partition_query
import connector.spool.cuts
import connector.spool.summaries
from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition
from connector.spool import consumers
from connector.spool.lifecycle import RESERVE
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from connector.spool.retention.pruning import NOT_KEPT, PRUNE_GRACE, Keeping, SpoolRetention
from connector.spool.storage.local import LocalStore
from connector.spool.storage.local_files import LocalFile
from connector.spool.writing import SpoolWriter
from tests.soak.faults import clock
from tests.soak.faults.process_faults import Points, ProcessFaults, mark

FULL = "the disk is full"
CLOCK_STOPPED = "the clock stopped"
_EPOCHS = ("segments/", "manifests/", "cuts/", "summaries/")
SINK_FULL = "the sink's disk is full"
_KINDS = {
    "segments": "a segment",
    "manifests": "a manifest",
    "schemas": "a schema",
    "cuts": "a cut file",
    "summaries": "a summary",
    "spool.json": "the header",
}


def set_clock(faults: ProcessFaults) -> None:
    """Makes the clock step and stop."""
    reported: set[int] = set()

    def report(number: int) -> None:
        if number not in reported:
            reported.add(number)
            mark(faults, CLOCK_STOPPED if number == clock.STOPPED else f"clock step {number}")

    if faults.clock_steps or faults.clock_stops:
        clock.set_by(faults.clock_steps, report, faults.clock_stops)


def inject_disk_faults(faults: ProcessFaults, *, full_at: int, name: str) -> None:
    """Makes the disk slow to sync, and full at one file."""
    sync = os.fsync
    files = 0

    def fsync(descriptor: int) -> None:
        nonlocal files
        time.sleep(faults.sync_seconds)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            files += 1
            if files == full_at:
                mark(faults, name)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    os.fsync = fsync  # type: ignore[assignment]


def fill_spool(faults: ProcessFaults) -> None:
    """Makes the spool's disk full while a file is there: until the reserve is given up, and for epochs in any case."""
    write, flag = LocalStore._write, Path(faults.full_while)

    def full_write(self: LocalStore, path: str, data: bytes | pa.Buffer) -> LocalFile:
        if faults.full_while and flag.exists() and (path.startswith(_EPOCHS) or self.exists(RESERVE)):
            raise self._errors.of("write", self.root / path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return write(self, path, data)

    LocalStore._write = full_write  # type: ignore[method-assign]


def kill_in_storage(points: Points) -> None:
    """Kills at the points of writing a file of the spool."""
    write, create, replace, link = LocalStore._write, LocalStore.create, LocalStore.replace, os.link

    def faulty_write(self: LocalStore, path: str, data: bytes | pa.Buffer) -> LocalFile:
        if points.is_next(f"in the middle of {_kind(path)}"):
            half = memoryview(data)[: len(memoryview(data)) // 2]
            (self._folder(path) / ".half-written.tmp").write_bytes(half)
            points.die()
        return write(self, path, data)

    def faulty_link(source: Path, target: Path) -> None:
        of_manifest = target.parent.name == "manifests"
        if of_manifest:
            points.reached("before the link of a manifest")
        link(source, target)
        if of_manifest:
            points.reached("after the link of a manifest")

    def faulty_create(self: LocalStore, path: str, data: bytes | pa.Buffer) -> None:
        if path in ("spool.json", "floor.json"):
            _before(points, path)
        create(self, path, data)
        _after(points, path)

    def faulty_replace(self: LocalStore, path: str, data: bytes | pa.Buffer, *, version: str | None = None) -> None:
        if version is not None:  # which replaces without one, once it has compared
            replace(self, path, data, version=version)
            return
        _before(points, path)
        replace(self, path, data)
        _after(points, path)

    LocalStore._write = faulty_write  # type: ignore[method-assign]
    LocalStore.create = faulty_create  # type: ignore[method-assign]
    LocalStore.replace = faulty_replace  # type: ignore[method-assign]
    connector.spool.storage.local_files.os.link = faulty_link  # type: ignore[attr-defined]


def _before(points: Points, path: str) -> None:
    points.reached(f"before {_kind(path)}" if path != "floor.json" else "before a prune")


def _after(points: Points, path: str) -> None:
    points.reached("after a segment, before its manifest" if "segments" in path else f"after {_kind(path)}")
    if path == "floor.json":
        points.reached("after the floor, before its epochs are deleted")


def kill_in_writer(points: Points, *, prunes: bool) -> None:
    """Kills at the points of a spool writer's work on more than one file."""
    seal, prune, sweep, delete = SpoolWriter.seal, SpoolRetention.prune, SpoolRetention._sweep, LocalStore.delete
    doing = "nothing"

    def faulty_delete(self: LocalStore, *paths: str) -> None:
        for path in paths:
            delete(self, path)
            points.reached(f"in the middle of {doing}")

    def faulty_prune(self: SpoolRetention, *, now: int, grace: int = PRUNE_GRACE, keeping: Keeping = NOT_KEPT) -> int:
        nonlocal doing
        doing = "a prune"
        pruned = prune(self, now=now, grace=0 if prunes else grace, keeping=keeping)
        if pruned:
            points.reached("after a prune")
        return pruned

    def faulty_sweep(self: SpoolRetention) -> None:
        nonlocal doing
        points.reached("before the sweep")
        doing = "the sweep"
        sweep(self)
        points.reached("after the sweep")

    def faulty_seal(
        self: SpoolWriter, epoch: SealedEpoch, cut: list[CutPartition], *, now: int, final: bool = False
    ) -> Manifest:
        if final:
            points.reached("before the last epoch")
        sealed = seal(self, epoch, cut, now=now, final=final)
        if final:
            points.reached("after the last epoch")
        return sealed

    LocalStore.delete = faulty_delete  # type: ignore[method-assign]
    SpoolRetention.prune = faulty_prune  # type: ignore[method-assign]
    SpoolRetention._sweep = faulty_sweep  # type: ignore[method-assign]
    SpoolWriter.seal = faulty_seal  # type: ignore[assignment,method-assign]


def kill_at_progress(points: Points) -> None:
    """Kills at the points of recording a consumer's progress."""
    record = consumers.record

    def faulty_record(spool: Spool, name: str, epoch: int, *, now: int, at: str = "") -> consumers.Consumer:
        points.reached("before progress is recorded")
        recorded = record(spool, name, epoch, now=now, at=at)
        points.reached("after progress is recorded")
        return recorded

    consumers.record = faulty_record


def hurry() -> None:
    """Shortens the daemon's long timeouts, because the server's time runs faster than real time."""
    connector.spanner.partition_query.SILENT_AT_LEAST = 2 * 10**9
    connector.spanner.partition_query.SILENT_HEARTBEATS = 1
    connector.daemon.spool_sink.PRUNE_INTERVAL = 0.2
    connector.daemon.states.watching.INTERVAL = 0.5
    connector.core.health.retries.LASTING = 2 * 10**9
    connector.core.health.retries._REPEATED = connector.core.health.retries.PROOF = 10**9


def write_cut_files(faults: ProcessFaults) -> None:
    """Gives all cuts files of their own if the faults say so."""
    if faults.cut_files:
        connector.spool.cuts.INLINE = 1
        connector.spool.summaries.BLOCK = 8


def decode_as_columns(faults: ProcessFaults) -> None:
    """Decodes rows as columns however few they are if the faults say so."""
    if faults.columns:
        connector.spanner.decoding.decoder.FEW = 0


def _kind(path: str) -> str:
    return _KINDS.get(path.partition("/")[0], path)
