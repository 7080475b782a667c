"""From a sealed spool through Spark, with one core: to a sink that drops rows, and to JSON lines.

Spark's own overheads are in it: a query takes about half a second to begin, a micro-batch a tenth. Processor time is
that of Python and the JVM together. The first round of each does not count.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import reading, spark_queries
from benchmarks.messages import Replay
from benchmarks.replay import replaying
from benchmarks.result import Result, Round
from benchmarks.size import LENGTHS, Size
from benchmarks.subject import Measure, Subject, Work, subject

_WARM_UP = 1000
_ROWS = 3
"""How many times the mods of a round a sealed spool holds, lest Spark's own overheads be all there is."""


def spool_to_noop(size: Size) -> Iterator[Result]:
    """A streaming query with AvailableNow over a sealed spool."""
    with _session() as spark:
        for dialect in size.dialects:
            with _sealed(dialect, size) as (spool, rows):
                rounds = [_over(spark, spark_queries.to_noop, spool) for _ in range(size.rounds + 1)][1:]
            assert all(found.events == rows for found in rounds), "Spark did not get every row"
            yield Result.measured("spool-to-spark-noop", dialect, None, rounds)


def spool_to_jsonl(size: Size) -> Iterator[Result]:
    """The file sink over a sealed spool, against Spark's own JSON writer over the same rows."""
    with _session() as spark:
        for dialect in size.dialects:
            rounds: list[Round] = []
            with _sealed(dialect, size) as (spool, rows):
                for _ in range(size.rounds + 1):
                    ours = _over(spark, spark_queries.to_jsonl, spool, rows)
                    rounds.append((ours, _over(spark, spark_queries.to_sparks_json, spool, rows)))
            yield Result.compared("spool-to-jsonl", dialect, None, rounds[1:], {})


def wire_to_noop(size: Size) -> Iterator[Result]:
    """The daemon's reader and a streaming query behind it, at the same time, until Spark has the last row."""
    with _session() as spark:
        for dialect, framing in size.cells:
            replay = Replay(dialect, framing)
            span = replay.span(size.mods * LENGTHS[framing])
            rounds = []
            with replaying(replay, span) as server, subject() as reader:
                for wanted in [replay.span(_WARM_UP)] + [span] * size.rounds:
                    with tempfile.TemporaryDirectory() as spool, tempfile.TemporaryDirectory() as folder:
                        spark.begin(spark_queries.follow_to_noop, spool, folder, wanted.mods)
                        reader.run(reading.to_spool, server.host, replay, wanted, spool)
                        rounds.append(spark.finish())
            yield Result.measured("wire-to-spark-noop", dialect, framing, rounds[1:])


@contextmanager
def _sealed(dialect: str, size: Size) -> Iterator[tuple[Path, int]]:
    """A spool that is sealed to its end, and how many rows it has."""
    replay = Replay(dialect, "16/msg")
    span = replay.span(size.mods * _ROWS)
    with tempfile.TemporaryDirectory() as folder, replaying(replay, span) as server, subject() as reader:
        reader.run(reading.to_spool, server.host, replay, span, folder)
        yield Path(folder), span.mods


@contextmanager
def _session() -> Iterator[Subject]:
    """A process with a Spark session."""
    with tempfile.TemporaryDirectory() as folder, subject() as spark:
        spark.run(spark_queries.open_session, folder)
        yield spark


def _over(spark: Subject, work: Work, spool: Path, *arguments: object) -> Measure:
    """Measures a query over a spool that no query has read yet: a copy by links."""
    with tempfile.TemporaryDirectory(dir=spool.parent) as folder:
        copy = shutil.copytree(spool, Path(folder, "spool"), copy_function=os.link)
        found = spark.run(work, str(copy), folder, *arguments)
        written = spark_queries.events_in(folder)
        if written.exists():
            assert _lines(written) == found.events, "rows are missing in the files"
    return found


def _lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("[!.]*.json*"))
