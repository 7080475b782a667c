"""Measures Spark over a spool, with one core: to a sink that drops rows, to files, and to BigQuery's double.

The measurement starts when the query has delivered its first rows: see `benchmarks.spark_queries`. Processor time is
that of Python and the JVM together, and of the reader if it runs too. The first round of each benchmark does not count.
"""

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import spark_queries
from benchmarks.measure import reading
from benchmarks.measure.files import rows_below
from benchmarks.measure.result import Result, Round
from benchmarks.measure.size import LENGTHS, Size
from benchmarks.measure.subject import Measure, Subject, subject
from benchmarks.replay.messages import Replay
from benchmarks.replay.server import replaying
from connector.spool.reading import Spool, manifest_path
from emulator.bigquery import double

_FIRST = 1000
_ROWS = 3
"""A sealed spool holds this many times the mods of a round."""


def spool_to_noop(size: Size) -> Iterator[Result]:
    """A streaming query over a sealed spool."""
    with _session() as spark:
        for dialect in size.dialects:
            with _sealed(dialect, size) as sealed:
                rounds = [_to_noop(spark, sealed) for _ in range(size.rounds + 1)]
            yield Result.measured("spool-to-spark-noop", dialect, None, rounds[1:])


def spool_to_jsonl(size: Size) -> Iterator[Result]:
    """The file sink's JSON lines over a sealed spool, against Spark's own JSON writer over the same rows."""
    yield from _to_files("jsonl", size)


def spool_to_avro(size: Size) -> Iterator[Result]:
    """The file sink's Avro files likewise, against Spark's own Avro writer."""
    yield from _to_files("avro", size)


def spool_to_bigquery(size: Size) -> Iterator[Result]:
    """The BigQuery sink in the mode merge over a sealed spool, into a double in a separate process that only counts."""
    with _session() as spark, _counting_bigquery() as endpoints:
        for dialect in size.dialects:
            with _sealed(dialect, size) as sealed:
                rounds = [_to_bigquery(spark, sealed, endpoints) for _ in range(size.rounds + 1)]
            yield Result.measured("spool-to-bigquery", dialect, None, rounds[1:])


def wire_to_noop(size: Size) -> Iterator[Result]:
    """The daemon's reader and a streaming query behind it, at the same time, until Spark has the last row."""
    with _session() as spark:
        for dialect, framing in size.cells:
            replay = Replay(dialect, framing)
            first, span = replay.span(_FIRST), replay.span(size.mods * LENGTHS[framing])
            rounds = []
            with replaying(replay, span) as server, subject() as reader:
                for _ in range(size.rounds + 1):
                    with tempfile.TemporaryDirectory() as spool, tempfile.TemporaryDirectory() as folder:
                        reader.run(reading.to_spool, server.host, replay, first, spool)
                        spark.start(spark_queries.to_noop, spool, folder, first.mods, span.mods)
                        spark.until(spark_queries.started(folder).exists)
                        read = reader.run(reading.to_spool, server.host, replay, span, spool)
                        found = spark.finish()
                        assert found.events == span.mods - first.mods, "Spark did not get every row once"
                        rounds.append(replace(found, cpu=found.cpu + read.cpu))
            yield Result.measured("wire-to-spark-noop", dialect, framing, rounds[1:])


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A spool of several epochs: some with the first rows, and the others."""

    path: Path
    first_epochs: int
    first_rows: int
    epochs: int
    rows: int

    @contextmanager
    def first_part(self) -> Iterator[Path]:
        """A copy, by hard links, with the first epochs only; the folder around it may be written to."""
        with tempfile.TemporaryDirectory(dir=self.path.parent) as folder:
            copy = shutil.copytree(self.path, Path(folder, "spool"), copy_function=os.link)
            for epoch in range(self.first_epochs + 1, self.epochs + 1):
                (copy / manifest_path(epoch)).unlink()
            yield copy

    def complete(self, copy: Path) -> None:
        """Adds the other epochs to the copy."""
        for epoch in range(self.first_epochs + 1, self.epochs + 1):
            (copy / manifest_path(epoch)).hardlink_to(self.path / manifest_path(epoch))


@contextmanager
def _sealed(dialect: str, size: Size) -> Iterator[_Sealed]:
    replay = Replay(dialect, "16/msg")
    first, span = replay.span(_FIRST), replay.span(size.mods * _ROWS)
    with tempfile.TemporaryDirectory() as folder, replaying(replay, span) as server, subject() as reader:
        path = Path(folder, "spool")
        epochs = []
        for wanted in (first, span):
            reader.run(reading.to_spool, server.host, replay, wanted, str(path))
            epochs.append(Spool.at(path).latest())
        yield _Sealed(path, epochs[0], first.mods, epochs[1], span.mods)


@contextmanager
def _session() -> Iterator[Subject]:
    """A process with a Spark session."""
    with tempfile.TemporaryDirectory() as folder, subject() as spark:
        spark.run(spark_queries.open_session, folder)
        yield spark


def _to_noop(spark: Subject, sealed: _Sealed) -> Measure:
    with sealed.first_part() as spool:
        folder = str(spool.parent)
        spark.start(spark_queries.to_noop, str(spool), folder, sealed.first_rows, sealed.rows)
        spark.until(spark_queries.started(folder).exists)
        sealed.complete(spool)
        found = spark.finish()
    assert found.events == sealed.rows - sealed.first_rows, "Spark did not get every row once"
    return found


def _to_files(file_format: str, size: Size) -> Iterator[Result]:
    with _session() as spark:
        for dialect in size.dialects:
            with _sealed(dialect, size) as sealed:
                rounds: list[Round] = [
                    (_by_our_sink(file_format, spark, sealed), _by_sparks_writer(file_format, spark, sealed))
                    for _ in range(size.rounds + 1)
                ]
            yield Result.compared(f"spool-to-{file_format}", dialect, None, rounds[1:], {})


def _by_our_sink(file_format: str, spark: Subject, sealed: _Sealed) -> Measure:
    with sealed.first_part() as spool:
        folder = str(spool.parent)
        spark.start(spark_queries.to_files, str(spool), folder, file_format, *_filled(sealed))
        spark.until(spark_queries.started(folder).exists)
        sealed.complete(spool)
        found = spark.finish()
        assert rows_below(spark_queries.events_in(folder), file_format) == sealed.rows, "rows are missing in the files"
    return replace(found, events=sealed.rows - sealed.first_rows)


def _by_sparks_writer(file_format: str, spark: Subject, sealed: _Sealed) -> Measure:
    with sealed.first_part() as spool:
        sealed.complete(spool)
        folder = str(spool.parent)
        found = spark.run(spark_queries.to_sparks_files, str(spool), folder, file_format)
        assert rows_below(spark_queries.events_in(folder), file_format) == sealed.rows, "rows are missing in the files"
    return replace(found, events=sealed.rows)


@contextmanager
def _counting_bigquery() -> Iterator[tuple[str, str]]:
    near, far = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=double.serve, args=(far,), kwargs={"keep_rows": False, "check": False}
    )
    process.start()
    try:
        yield near.recv()
    finally:
        near.send(None)
        process.join()


def _to_bigquery(spark: Subject, sealed: _Sealed, endpoints: tuple[str, str]) -> Measure:
    with sealed.first_part() as spool:
        spark.start(
            spark_queries.to_bigquery, str(spool), str(spool.parent), endpoints, sealed.first_epochs, sealed.epochs
        )
        spark.until(spark_queries.started(str(spool.parent)).exists)
        sealed.complete(spool)
        found = spark.finish()
    return replace(found, events=sealed.rows - sealed.first_rows)


def _filled(sealed: _Sealed) -> tuple[int, int]:
    """The number of the first epochs, and of all, that have rows."""
    filled = [bool(manifest.files) for manifest in Spool.at(sealed.path).manifests(1, sealed.epochs)]
    return sum(filled[: sealed.first_epochs]), sum(filled)
