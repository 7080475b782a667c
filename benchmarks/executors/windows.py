"""Measures reading on Spark's executors from a replay: against one process, with one executor and two, by windows.

Everything is from the wire to sealed epochs on a disk, by the product's driver and tasks. Only the length of windows is
given. The processor time is that of the driver, of all JVMs and of all Python workers; the server's is not in it.
"""

import statistics
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.executors import reading
from benchmarks.measure import reading as one_process
from benchmarks.measure.processes import watched
from benchmarks.measure.result import Result, Round, cost
from benchmarks.measure.size import Size
from benchmarks.measure.subject import Measure, Subject, subject
from benchmarks.replay.messages import FRAMINGS, Replay
from benchmarks.replay.server import ReplayServer, replaying

NAME = "executors"
_LOCAL = "local[2]"
_PARTITIONS = 2
_MIB = 1024**2


def windows(size: Size) -> Iterator[Result]:
    """All measurements."""
    yield from against_one_process(size)
    yield from two_against_one(size)
    yield from by_length(size)
    yield from memory(size)


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


def two_against_one(size: Size) -> Iterator[Result]:
    """Two executors of one core against one, and what processor time alone would allow if each had a core to itself."""
    for replay in _replays(size, among=("16/msg", "50-mod")):
        span, length = replay.seconds(reading.FIRST + _seconds(size)), _seconds(size)
        rounds: list[Round] = []
        bounds: list[float] = []
        shares: list[float] = []
        with replaying(replay, span) as server, driver(_cluster(1)) as one, driver(_cluster(2)) as two:
            for _ in range(size.rounds + 1):
                alone = _by_part(one, server, replay, length)
                both = _by_part(two, server, replay, length)
                rounds.append((both.measure, alone.measure))
                bounds.append(alone.longest / both.longest)
                shares.append(both.driver / both.measure.cpu)
        figures = {
            "by_cpu_alone": round(statistics.median(bounds[1:]), 2),
            "driver_share": round(statistics.median(shares[1:]), 3),
        }
        yield _compared(f"{NAME}-two", replay, rounds[1:], figures)


def by_length(size: Size) -> Iterator[Result]:
    """The same bytes, a minute of one partition, in windows of 1, 10 and 60 seconds."""
    replay = Replay("googlesql", "16/msg")
    seconds, lengths = (4, (1, 4)) if size.hurried else (60 - reading.FIRST, (1, 10, 60))
    with replaying(replay, replay.seconds(reading.FIRST + seconds)) as server, driver(_LOCAL) as spark:
        read(spark, server, replay, seconds, lengths[1])
        for length in lengths:
            found = read(spark, server, replay, seconds, length)
            figures = {
                "window_s": float(length),
                "wall_a_window": round(found.wall / -(-seconds // length), 2),
                "cpu_us_per_mod": _micros([found]),
            }
            yield Result.measured(f"{NAME}-windows", replay.dialect, replay.framing, [found]).having(figures)


def memory(size: Size) -> Iterator[Result]:
    """Windows of more and more mods, each in a new application: peaks of a Python worker and of an executor's JVM."""
    replay = Replay("googlesql", "50-mod", _PARTITIONS)
    for seconds in (1, 5) if size.hurried else (5, 50):
        span = replay.seconds(seconds)
        with replaying(replay, span) as server, driver(_cluster(2)) as spark, watched(spark.pid) as peaks:
            found = read(spark, server, replay, seconds, seconds)
        figures = {
            "mods": float(found.events),
            "worker_mib": round(peaks.worker / _MIB),
            "executor_jvm_mib": round(peaks.executor / _MIB),
            "cpu_us_per_mod": _micros([found]),
        }
        yield Result.measured(f"{NAME}-memory", replay.dialect, replay.framing, [found]).having(figures)


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


@dataclass(frozen=True, slots=True)
class _ByPart:
    """A measure, and the processor time of its parts."""

    measure: Measure
    driver: float
    executors: list[float]

    @property
    def longest(self) -> float:
        """The shortest time if each executor has a core to itself: the driver's part and the busiest executor's."""
        return self.driver + max(self.executors)


def _by_part(spark: Subject, server: ReplayServer, replay: Replay, seconds: int) -> _ByPart:
    with tempfile.TemporaryDirectory() as spool:
        found = _into(spool, spark, server, replay, seconds, seconds)
        used = reading.used(spool)
    return _ByPart(found, found.cpu - sum(used), used)


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


def _replays(size: Size, among: Collection[str] = tuple(FRAMINGS)) -> Iterator[Replay]:
    for dialect, framing in size.cells:
        if dialect == "googlesql" and framing in among:  # what Spark moves costs the same in both dialects
            yield Replay(dialect, framing, _PARTITIONS)


def _seconds(size: Size) -> int:
    return 2 if size.hurried else 10


def _cluster(count: int) -> str:
    return f"local-cluster[{count},1,1024]"
