"""Measures a backfill into each destination against the library's way: its batch reader and a plain write, in turns.

Both read the same partitions from a replay, in tasks of Spark, and begin with an empty destination. The connector's
turn has all that a backfill does: it reads into segments, seals epochs, and delivers them by the sink's query, whose
start is in the measurement. What warms a session up does not count.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from benchmarks.destinations import copying
from benchmarks.destinations.copying import CORES
from benchmarks.destinations.library import Parts
from benchmarks.destinations.places import BigQuery, Place, Spanner, files, tables
from benchmarks.measure.result import Result, Round
from benchmarks.measure.size import Size
from benchmarks.measure.subject import Measuring, Subject, subject
from benchmarks.replay.messages import Span
from benchmarks.replay.rows import TOGETHER, TableReplay
from benchmarks.replay.server import ReplayServer, replaying
from emulator import EmulatorNotFoundError
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version

NAME = "backfill"
_PLACES: dict[str, Place] = {
    "json": files("jsonl"),
    "avro": files("avro"),
    "bigquery": BigQuery(),
    "spanner": Spanner(),
}
"""The destinations that share a session; each lakehouse format has its own."""

_PARTITIONS = 4 * CORES
_TIMES = 10
"""The rows of a turn, for each mod of a round of other benchmarks: what a start costs is to weigh little."""

_WARM_UP = 1_600
"""Rows of a partition."""

_CLUSTER = 16
_TIB = 1024**4


def backfill(size: Size) -> Iterator[Result]:
    """Each destination that this environment can run."""
    yield from _results(_PLACES, size)
    for name, library in LIBRARIES.items():
        if spark_version() in library.versions:
            yield from _results({name: tables(name)}, size)
        else:
            click.echo(f"{NAME}: there is no library of {name} for PySpark {spark_version()} (docs)")


def _results(places: dict[str, Place], size: Size) -> Iterator[Result]:
    with replaying(TableReplay(), Span(0, 0)) as server, copier(places.values()) as (spark, folder):
        is_warm = False
        for name, place in places.items():
            warming = 0 if size.hurried and is_warm else 1
            is_warm = True
            try:
                found = [
                    turns(place, f"{folder}/{name}-{number}", spark, _parts(server, size if number else None))
                    for number in range(1 - warming, size.rounds + 1)
                ]
            except EmulatorNotFoundError:
                click.echo(f"{NAME}: there is no emulator of Spanner for {name}")
                continue
            yield _planned(Result.compared(NAME, None, name, found[warming:], {}))


@contextmanager
def copier(places: Iterable[Place]) -> Iterator[tuple[Subject, str]]:
    """A process with a session that can write the places, and a folder for their targets."""
    with tempfile.TemporaryDirectory() as folder, subject() as spark:
        with next(iter(places)).target(folder) as target:
            spark.run(copying.open_session, folder, target.sink)
        yield spark, folder
        spark.run(copying.close_session)


def turns(place: Place, folder: str, spark: Measuring, parts: Parts) -> Round:
    """Measures the connector and the library, each into an empty target."""
    with place.target(f"{folder}-connector") as target:
        ours = spark.run(copying.by_connector, parts, f"{folder}-connector", target.sink)
        _check(ours.events, target.rows(spark), parts)
    with place.target(f"{folder}-library") as target:
        library = target.plainly(spark, parts)
        _check(library.events, target.rows(spark), parts)
    return ours, library


def _check(reported: int, arrived: int, parts: Parts) -> None:
    assert reported == arrived == parts.total, f"{parts.total} rows: {reported} were reported, {arrived} have arrived"


def _parts(server: ReplayServer, size: Size | None) -> Parts:
    """The partitions of a turn; without a size, of one that warms up."""
    rows = size.mods * _TIMES // _PARTITIONS if size else _WARM_UP
    return Parts(server.host, _PARTITIONS, rows // TOGETHER * TOGETHER)


def _planned(found: Result) -> Result:
    """A result with the hours that 1 TiB takes on a small cluster, by the processor time of these rows."""
    row = TableReplay.row_bytes()
    hours = _TIB / row / found.figures["events_per_cpu_s"] / _CLUSTER / 3600
    return found.having({"bytes_a_row": round(row), "hours_a_tib": round(hours, 1)})
