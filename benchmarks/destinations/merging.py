"""Measures ``merge_into`` against Spark's own plain write of the same typed rows, one after the other in each round.

Half of an epoch's changes update rows that are there, which the plain write appends. The first epoch creates the tables
and warms the JVM up; it does not count.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace

import click

from benchmarks.destinations import tables
from benchmarks.destinations.epochs import seal_epochs
from benchmarks.measure.result import Result
from benchmarks.measure.size import Size
from benchmarks.measure.subject import subject
from spark_sink.tables.libraries import LIBRARIES, spark_version

_WARM_UP = 2


def merge_into(size: Size) -> Iterator[Result]:
    """Each format and mode that this PySpark has a library for."""
    formats = tables.formats()
    if missing := sorted(LIBRARIES.keys() - formats.keys()):
        click.echo(f"merge-into: there is no library for PySpark {spark_version()} of {', '.join(missing)} (docs)")
    for file_format, modes in formats.items():
        for mode in modes:
            yield _compared(file_format, mode, size)


def _compared(file_format: str, mode: str, size: Size) -> Result:
    epochs = size.rounds + _WARM_UP
    rounds = []
    with tempfile.TemporaryDirectory() as folder, subject() as spark:
        spool = f"{folder}/spool"
        seal_epochs(spool, epochs, size.mods)
        spark.run(tables.open_session, folder, file_format)
        for epoch in range(1, epochs + 1):
            found = spark.run(tables.merged, spool, folder, file_format, mode, epoch)
            assert found.events == size.mods, f"{size.mods} changes are in the epoch, {found.events} were merged"
            other = spark.run(tables.plain, spool, folder, file_format, epoch)
            rounds.append((found, replace(other, events=found.events)))
        spark.run(tables.close_session)
    return Result.compared("merge-into", file_format, mode, rounds[_WARM_UP:], {})
