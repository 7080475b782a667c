"""Measures the latency of the whole service: from the commit on the official emulator to the event's file.

``spanner-cdc run`` reads with heartbeats of 100 ms and of a second, and writes a file for each table and micro-batch
(``rotate_interval: 0s``). An event's latency is the time from its commit to the last change of its file. The parts are
medians, too: until the reader has the record, until a heartbeat of every partition has passed it and its epoch is
sealed, and from there through Spark to the file.
"""

import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.latencies.events import HEARTBEATS, MODS_PER_SECOND, percentiles
from benchmarks.measure.daemon import daemon
from benchmarks.measure.result import Result
from benchmarks.measure.size import Size
from connector.core.timestamps import parse
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from emulator import EmulatorNotFoundError, SampleDatabase, Workload, find_or_start

_WARM_UP = 10.0
"""Seconds of commits that are not measured: Spark compiles what its first micro-batches run."""

_MOST_STARTS = 30
"""The most times that long until Spark has written its first file."""


def commit_to_file(size: Size) -> Iterator[Result]:
    """Measures commits at an even pace until their files are written."""
    try:
        with find_or_start() as emulator:
            for heartbeat in HEARTBEATS:
                sample = SampleDatabase.create(emulator.host)
                try:
                    with tempfile.TemporaryDirectory() as folder:
                        yield _measured(sample, heartbeat, size.seconds, Path(folder))
                finally:
                    sample.drop()
    except EmulatorNotFoundError:
        return


def _measured(sample: SampleDatabase, heartbeat: str, seconds: float, folder: Path) -> Result:
    source = {
        "project": sample.project,
        "instance": sample.instance,
        "database": sample.database_id,
        "change_stream": sample.change_stream,
        "emulator_host": sample.host,
        "heartbeat": heartbeat,
    }
    events = folder / "events"
    workload = Workload(sample, seed=1, average_size=1.0)
    with daemon(source, folder, "run", {"path": str(events), "rotate_interval": "0s"}) as running:
        running.wait_for("queries", 1)
        for _ in range(_MOST_STARTS):
            workload.run(seconds=_WARM_UP, rate=MODS_PER_SECOND)
            if any(events.rglob("*.jsonl")):
                break
        workload.run(seconds=_WARM_UP, rate=MODS_PER_SECOND)
        since = workload.committed[-1].commit_timestamp_ns
        workload.run(seconds=seconds, rate=MODS_PER_SECOND)
        running.drain()
    sealed = {manifest.epoch: manifest.sealed_at for manifest in _manifests(folder / "spool")}
    late: list[int] = []
    parts: dict[str, list[int]] = {"commit_to_read": [], "read_to_seal": [], "seal_to_file": []}
    for path in events.rglob("*.jsonl"):
        written = path.stat().st_mtime_ns
        for line in path.read_bytes().splitlines():
            event = json.loads(line)
            committed = parse(event["source_metadata"]["commit_timestamp"])
            if committed <= since:
                continue
            late.append(written - committed)
            read = parse(event["read_timestamp"])
            parts["commit_to_read"].append(read - committed)
            if (at := sealed.get(int(path.stem.split("_")[-2]))) is not None:
                parts["read_to_seal"].append(at - read)
                parts["seal_to_file"].append(written - at)
    figures = {"events": float(len(late)), **percentiles("commit_to_file", late)}
    figures |= {f"{name}_ms": round(statistics.median(found) / 1e6, 1) for name, found in parts.items() if found}
    return Result("latency", sample.dialect, heartbeat, figures=figures)


def _manifests(path: Path) -> Iterator[Manifest]:
    spool = Spool.at(path)
    return spool.manifests(spool.floor(), spool.latest())
