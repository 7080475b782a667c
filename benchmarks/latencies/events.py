"""Measures the latency of events: from the commit to the printed line, and from the seal to the written file.

The first is measured on the official emulator, whose clock is this machine's, with heartbeats of 100 ms and of a
second. A commit is known to be complete only when a heartbeat of every partition has passed it. The reader adds the
time from the watermark that completes an epoch to the end of its delivery. The second is measured with Spark's file
sink over a spool that gets a small epoch twice a second, each written as soon as it is sealed. From the commit to the
file, through the whole service, is :mod:`benchmarks.latencies.files`.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from benchmarks import spark_queries
from benchmarks.measure import reading
from benchmarks.measure.result import Result
from benchmarks.measure.size import Size
from benchmarks.measure.subject import subject
from benchmarks.replay.sample import Sample
from connector.config import SourceConfig
from connector.core.changes import Changes
from connector.core.dialects import GOOGLESQL, IMMUTABLE
from connector.core.epoch import SealedEpoch
from connector.core.filters import RecordFilter
from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN, DataChangeRecord
from connector.core.schemas import SchemaRegistry
from connector.core.timestamps import SECOND, format_rfc3339
from connector.envelope.envelope import EnvelopeBuilder
from connector.envelope.events import EventWriter
from connector.reader.change_stream import OpenStream, opened
from connector.reader.read_state import Range
from connector.reader.unspooled import seal_interval
from connector.spanner.decoding.decoder import walk
from connector.spool.reading import Spool
from connector.spool.writing import SpoolWriter, checkpoint, initialize, sole_writer
from connector.telemetry.metrics import ReaderMetrics
from emulator import EmulatorNotFoundError, SampleDatabase, Workload, find_or_start

HEARTBEATS = ("100ms", "1s")
MODS_PER_SECOND = 20
_STARTUP = 5.0
_PAUSE = 0.5


class _TimedPrinter:
    """Formats an epoch's lines as ``tail`` does, and records the latency of each record in nanoseconds."""

    def __init__(self, stream: OpenStream) -> None:
        self._registry = SchemaRegistry(stream.stream.tables)
        self._envelope = EnvelopeBuilder(stream.source, stream_name=None, read_method="spanner-cdc")
        self._events = EventWriter(self._registry.by_key)
        self._started = 0
        self.after_commit: list[int] = []
        self.after_watermark: list[int] = []

    async def room(self, stopping: asyncio.Event) -> bool:
        return True

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        await asyncio.to_thread(self._print, epoch.changes)
        now = time.time_ns()
        self._started = self._started or now
        late = [now - int(at) for at in epoch.changes.commit_timestamps if at > self._started]
        self.after_commit += late
        self.after_watermark += [now - epoch.high] * len(late)

    def _print(self, changes: Changes) -> None:
        if changes.mods:
            BytesIO().writelines(self._events.lines(self._envelope.build(changes, self._registry, 1)))


def commit_to_event(size: Size) -> Iterator[Result]:
    """Measures commits at an even pace until their events are printed."""
    try:
        with find_or_start() as emulator, tempfile.TemporaryDirectory() as folder:
            for heartbeat in HEARTBEATS:
                sample = SampleDatabase.create(emulator.host)
                try:
                    yield _commit_to_event(sample, heartbeat, size.seconds, Path(folder, "late.json"))
                finally:
                    sample.drop()
    except EmulatorNotFoundError:
        return


def _commit_to_event(sample: SampleDatabase, heartbeat: str, seconds: float, late: Path) -> Result:
    start = time.time_ns()
    source = SourceConfig.model_validate(
        {
            "project": sample.project,
            "instance": sample.instance,
            "database": sample.database_id,
            "change_stream": sample.change_stream,
            "emulator_host": sample.host,
            "heartbeat": heartbeat,
            "start": format_rfc3339(start),
            "end": format_rfc3339(start + int((seconds + _STARTUP + 1) * SECOND)),
            "workers": 1,
        }
    )
    workload = Workload(sample, seed=1, average_size=1.0)
    with subject() as reader:
        reader.start(follow, source, late)
        workload.run(seconds=seconds + _STARTUP, rate=MODS_PER_SECOND)
        reader.finish()
    after_commit, after_watermark = json.loads(late.read_text())
    figures = {
        "events": float(len(after_commit)),
        **percentiles("commit_to_event", after_commit),
        **percentiles("watermark_to_event", after_watermark),
    }
    return Result("latency", sample.dialect, heartbeat, figures=figures)


def follow(source: SourceConfig, late: Path) -> int:
    """Reads a change stream to its end, and writes the latencies of its events to a file."""
    after_commit, after_watermark = asyncio.run(_follow(source))
    late.write_text(json.dumps([after_commit, after_watermark]))
    return len(after_commit)


async def _follow(source: SourceConfig) -> tuple[list[int], list[int]]:
    async with opened(source) as stream:
        assert source.end is not None
        start, end = stream.resolve(source.start), stream.resolve(source.end)
        printer = _TimedPrinter(stream)
        span = Range((CutPartition(INITIAL_TOKEN, start),), start - 1, end)
        scheduling = stream.scheduler(
            span, printer, seal_interval=seal_interval(source.heartbeat), metrics=ReaderMetrics()
        )
        async with scheduling as scheduler:
            await scheduler.run()
        return printer.after_commit, printer.after_watermark


def seal_to_sink(size: Size) -> Iterator[Result]:
    """Measures small epochs from their seals until their files exist."""
    with tempfile.TemporaryDirectory() as folder, subject() as spark:
        spark.run(spark_queries.open_session, folder)
        spool = Spool.at(Path(folder, "spool"))
        events = spark_queries.events_in(folder)
        with sole_writer(spool):
            header = initialize(spool, reading.NAME, time.time_ns(), "now", [])
            writer = SpoolWriter(spool, header, checkpoint(spool, header), reading.envelope(), RecordFilter())
            spark.start(spark_queries.to_files_until_stopped, spool.path, folder)
            first = _seal(writer)  # the query starts with it
            spark.until(lambda: any(events.rglob("*.jsonl")))
            sealed = [first] + [_seal(writer) for _ in range(int(size.seconds / _PAUSE))]
            spark_queries.stop_file(folder).touch()
            spark.finish()
        written = {int(path.stem.split("_")[-2]): path.stat().st_ctime_ns for path in events.rglob("*.jsonl")}
    late = [written[epoch] - at for epoch, at in enumerate(sealed, 1)][1:]
    yield Result("seal-to-sink", "googlesql", figures={"epochs": float(len(late)), **percentiles("late", late)})


def _seal(writer: SpoolWriter) -> int:
    """Seals an epoch of a few records after a pause; returns when it was sealed."""
    time.sleep(_PAUSE)
    now = time.time_ns()
    records = tuple(replace(record, commit_timestamp=now - 10 + n) for n, record in enumerate(_records()))
    epoch = SealedEpoch(now - SECOND, now, records, sum(record.size for record in records))
    writer.seal(epoch, [CutPartition("replayed", now)], now=now)
    return time.time_ns()


def _records() -> list[DataChangeRecord]:
    decode = walk(GOOGLESQL, IMMUTABLE)
    found = [record for row in Sample.of("googlesql").records[1] for record in decode(row, time.time_ns())]
    return [record for record in found if isinstance(record, DataChangeRecord)]


def percentiles(name: str, nanoseconds: list[int]) -> dict[str, float]:
    """The median and the 95th percentile, in milliseconds."""
    hundredths = statistics.quantiles(nanoseconds, n=100)
    return {f"{name}_p{n}_ms": round(hundredths[n - 1] / 1e6, 1) for n in (50, 95)}
