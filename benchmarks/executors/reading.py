"""The work of a driver's process: functions for `benchmarks.measure.subject`.

The session is created first, as ``spanner-cdc read`` creates it. Windows have a given length of commit time; everything
else is the product's.
"""

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measure import reading
from benchmarks.measure.processes import cpu_of_tree, executors
from benchmarks.measure.subject import done, prepared
from benchmarks.replay.messages import Replay, Span
from benchmarks.spark_queries import standard_error_in
from connector.config import SparkConfig, validated
from connector.core.timestamps import SECOND, format_rfc3339
from connector.core.windows import WindowPace
from connector.daemon.read import RangeToRead
from connector.reader.read_state import Range
from connector.telemetry.metrics import ReaderMetrics
from spark_sink.reading.windows.reading import WindowReader
from spark_sink.session import session

FIRST = 1
"""Seconds of the first window. One task reads it, since nothing is known of the load; it is not measured."""


@dataclass(frozen=True, slots=True)
class SteadyPace(WindowPace):
    """Windows of the same length, however far they are behind."""

    def after(self, *, span: int, bytes: int, behind: int, partitions: int) -> WindowPace:  # noqa: A002 - the word of every report
        """The same length, with what is known of the rate."""
        found = WindowPace.after(self, span=span, bytes=bytes, behind=behind, partitions=partitions)
        return SteadyPace(self.length, found.bytes_per_second)


@dataclass(frozen=True, slots=True)
class FirstWindow(WindowPace):
    """The first window; the measurement starts after it."""

    rest: int = 0
    """Nanoseconds of the windows after it."""

    def after(self, *, span: int, bytes: int, behind: int, partitions: int) -> WindowPace:  # noqa: A002 - the word of every report
        """The pace of the others."""
        before = {pid: cpu_of_tree(pid) for pid in executors(os.getpid())}
        _USED.clear()
        _USED.update(before)
        prepared()
        return SteadyPace(self.rest).after(span=span, bytes=bytes, behind=behind, partitions=partitions)


_USED: dict[int, float] = {}
"""The processor time of each executor when the measurement started."""


def open_session(master: str, folder: str) -> int:
    """Creates the process's session; the folder must outlive it, and gets the JVMs' output."""
    config = {"spark.driver.memory": "1g", "spark.local.dir": folder}
    with standard_error_in(Path(folder, "jvm.log")):
        session(SparkConfig(master=master, config=config), Path(folder), verbose=False)
    return 0


def to_spool(host: str, replay: Replay, span: Span, folder: str, length: int) -> int:
    """Reads a span into a spool that is new: a first window, and the others in ``length`` seconds each.

    Returns how many rows the others have. `used` returns what the executors used for them.
    """
    return asyncio.run(_to_spool(host, replay, span, folder, length))


async def _to_spool(host: str, replay: Replay, span: Span, folder: str, length: int) -> int:
    spark, metrics = SparkSession.builder.getOrCreate(), ReaderMetrics()
    source = {**reading.NAME.model_dump(), "emulator_host": host, "reader": "executors"}
    config = validated({"source": source, "spool": {"path": folder}})
    with reading.spooled(folder, metrics) as (sink, at):
        async with reading.opened(host, replay, span.end + SECOND) as stream:
            what = RangeToRead(stream, config, Range(at.cut, at.watermark, span.end), sink, metrics)
            reader = WindowReader(what, spark, pace=FirstWindow(FIRST * SECOND, rest=length * SECOND))
            await reader.run()
            done()
            found = [cpu_of_tree(pid) - before for pid, before in _USED.items()]
            _note(folder, found)
        sealed = list(sink.spool.manifests(2, sink.spool.latest()))
    assert sealed[-1].watermark_high == span.end, format_rfc3339(sealed[-1].watermark_high)
    return sum(manifest.rows for manifest in sealed)


def _note(folder: str, found: list[float]) -> None:
    Path(folder, _FILE).write_text(json.dumps(found), encoding="utf-8")


def used(folder: str) -> list[float]:
    """The processor time of each executor that `to_spool` used after its first window, in seconds."""
    found: list[float] = json.loads(Path(folder, _FILE).read_text(encoding="utf-8"))
    return found


_FILE = "executors.json"
