"""Measures reading on Spark's executors from a replay: against one process.

Everything is from the wire to sealed epochs on a disk, by the product's driver and tasks. Only the length of windows is
given. The processor time is that of the driver, of all JVMs and of all Python workers; the server's is not in it.
"""

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.executors import reading
from benchmarks.measure import reading as one_process
from benchmarks.measure.result import Result, Round, cost
from benchmarks.measure.size import Size
from benchmarks.measure.subject import Measure, Subject, subject
from benchmarks.replay.messages import Replay
from benchmarks.replay.server import ReplayServer, replaying

NAME = "executors"
_LOCAL = "local[2]"
_PARTITIONS = 2


def windows(size: Size) -> Iterator[Result]:
    """The benchmark."""
    yield from against_one_process(size)


def against_one_process(size: Size) -> Iterator[Result]:
    """One window of all bytes on two cores, against the reader in one process."""
    for replay in _replays(size):
        span, length = replay.seconds(reading.FIRST + _seconds(size)), _seconds(size)
        with replaying(replay, span) as server, driver(_LOCAL) as spark, subject() as process:
            rounds: list[Round] = []
            for _ in range(size.rounds + 1):
                ours = read(spark, server, replay, length, length)
                with tempfile.TemporaryDirectory() as spool:
                    process.run(one_process.to_spool, server.host, replay, replay.seconds(reading.FIRST), spool)
                    rounds.append((ours, process.run(one_process.to_spool, server.host, replay, span, spool)))
        yield _compared(NAME, replay, rounds[1:])


@contextmanager
def driver(master: str) -> Iterator[Subject]:
    """A process with a session of that master."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, subject() as spark:
        spark.run(reading.open_session, master, folder)
        yield spark


def read(spark: Subject, server: ReplayServer, replay: Replay, seconds: int, length: int) -> Measure:
    """Measures reading so many seconds of commit time, in windows of ``length`` seconds, after a first window."""
    with tempfile.TemporaryDirectory() as spool:
        return _into(spool, spark, server, replay, seconds, length)


def _into(spool: str, spark: Subject, server: ReplayServer, replay: Replay, seconds: int, length: int) -> Measure:
    first, span = replay.seconds(reading.FIRST), replay.seconds(reading.FIRST + seconds)
    found = spark.run(reading.to_spool, server.host, replay, span, spool, length)
    assert found.events == span.mods - first.mods, f"{found.events} mods were read of {span.mods - first.mods}"
    return found


def _compared(name: str, replay: Replay, rounds: list[Round], figures: dict[str, float] | None = None) -> Result:
    times = statistics.median(cost(us) / cost(them) for us, them in rounds)
    found = {"cpu_times": round(times, 2), "cpu_us_per_mod": _micros([us for us, _ in rounds]), **(figures or {})}
    return Result.compared(name, replay.dialect, replay.framing, rounds, found)


def _micros(rounds: list[Measure]) -> float:
    return round(statistics.median(cost(found) for found in rounds) * 1e6, 2)


def _replays(size: Size) -> Iterator[Replay]:
    for dialect, framing in size.cells:
        if dialect == "googlesql":  # what Spark moves costs the same in both dialects
            yield Replay(dialect, framing, _PARTITIONS)


def _seconds(size: Size) -> int:
    return 2 if size.hurried else 10
