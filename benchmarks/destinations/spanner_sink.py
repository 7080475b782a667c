"""Measures the Spanner sink against plain writes of the same rows by google-cloud-spanner, into the official emulator.

Half of an epoch's changes update rows that are there. Neither side starts Spark: the sink's one task is what is
measured. The plain writes are of one thread, with as many cells a commit as the sink's, without merging rows, without
bookkeeping. The first epoch creates the rows and does not count.
"""

import tempfile
from collections.abc import Iterator

import orjson

from benchmarks.destinations.databases import connected, database_with
from benchmarks.destinations.epochs import TABLE, sealed_epochs
from benchmarks.measure.result import Result
from benchmarks.measure.size import Size
from benchmarks.measure.subject import subject
from connector.config.address import DatabaseAddress
from connector.spool.reading import Spool
from emulator import EmulatorNotFoundError, find_or_start
from spark_sink.sinks.spanner.config import Applying, SpannerConfig
from spark_sink.sinks.spanner.creation import prepare
from spark_sink.sinks.spanner.source import EpochsToApply, SpannerPlace, applied
from spark_sink.sinks.spanner.writing.mutations import CELLS
from spark_sink.sinks.spanner.writing.writer import MOST_CHANGES

_WARM_UP = 1
_TABLE = "Performers"
"""The sample database has a table with the other name."""

_COLUMNS = {
    "googlesql": {
        "Id": "INT64 NOT NULL",
        "Name": "STRING(MAX)",
        "Age": "INT64",
        "Score": "FLOAT64",
        "Born": "DATE",
        "Changed": "TIMESTAMP",
    },
    "postgresql": {
        "Id": "bigint NOT NULL",
        "Name": "varchar",
        "Age": "bigint",
        "Score": "double precision",
        "Born": "date",
        "Changed": "timestamptz",
    },
}
"""Of the table, by the dialect."""


def spool_to_spanner(size: Size) -> Iterator[Result]:
    """Both dialects and modes."""
    try:
        with find_or_start() as emulator:
            for dialect in size.dialects:
                for mode in MOST_CHANGES:
                    yield _compared(emulator.host, dialect, mode, size)
    except EmulatorNotFoundError:
        return


def _compared(host: str, dialect: str, mode: str, size: Size) -> Result:
    rounds = []
    with (
        database_with(host, dialect, _TABLE, _COLUMNS[dialect]) as target,
        database_with(host, dialect, _TABLE, _COLUMNS[dialect]) as other,
        tempfile.TemporaryDirectory() as folder,
        subject() as sink,
        subject() as plain,
    ):
        prepare(target)
        for epoch in sealed_epochs(f"{folder}/spool", size.rounds + _WARM_UP, size.mods):
            found = sink.run(apply, folder, target, mode, epoch)
            assert found.events == size.mods, f"{size.mods} changes are in the epoch, {found.events} were applied"
            rounds.append((found, plain.run(write, folder, other, epoch)))
    return Result.compared("spool-to-spanner", dialect, mode, rounds[_WARM_UP:], {})


def apply(folder: str, target: DatabaseAddress, mode: str, epoch: int) -> int:
    """Applies an epoch by the sink; returns its events."""
    spool = Spool.at(f"{folder}/spool")
    applying = Applying.of(
        SpannerConfig.model_validate({"database": target.database, "mode": mode, "tables": {TABLE: _TABLE}})
    )
    place = SpannerPlace(target, "benchmark", f"{folder}/dead-letters")
    part = EpochsToApply(spool.path, "spanner", place, applying, (spool.manifest(epoch),))
    return sum(sum(written.applied.values()) for written in applied(part))


def write(folder: str, target: DatabaseAddress, epoch: int) -> int:
    """Writes the rows of an epoch by the library; returns how many."""
    spool = Spool.at(f"{folder}/spool")
    database = connected(target)
    columns = tuple(_COLUMNS["googlesql"])
    written = 0
    for file in spool.manifest(epoch).files:
        for events in spool.batches(file):
            payloads = map(orjson.loads, events.column("payload").to_pylist())
            rows = [[payload[name] for name in columns] for payload in payloads]
            for first in range(0, len(rows), CELLS // len(columns)):
                with database.batch() as batch:
                    batch.insert_or_update(_TABLE, columns, rows[first : first + CELLS // len(columns)])
            written += len(rows)
    return written
