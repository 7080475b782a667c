"""Measures ``merge_into`` against Spark's own plain write of the same typed rows, one after the other in each round.

Half of a micro-batch's changes update rows that are there, which the plain write appends. The first two micro-batches
create the tables and warm the JVM up; they do not count.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace

import click

from benchmarks.destinations import tables
from benchmarks.destinations.epochs import sealed_epochs
from benchmarks.measure.result import Result
from benchmarks.measure.size import Size
from benchmarks.measure.subject import subject
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version

_WARM_UP = 2

_EPOCHS = 4
"""Of a micro-batch: those of as many seconds, in which the one before it was merged. A task reads one or more."""


def merge_into(size: Size) -> Iterator[Result]:
    """Each format and mode that this PySpark has a library for."""
    formats = tables.formats()
    if missing := sorted(LIBRARIES.keys() - formats.keys()):
        click.echo(f"merge-into: there is no library for PySpark {spark_version()} of {', '.join(missing)} (docs)")
    for file_format, modes in formats.items():
        for mode in modes:
            yield _compared(file_format, mode, size)


def _compared(file_format: str, mode: str, size: Size) -> Result:
    rounds = []
    with tempfile.TemporaryDirectory() as folder, subject() as spark:
        spool = f"{folder}/spool"
        spark.run(tables.open_session, folder, file_format)
        for newest in sealed_epochs(spool, size.rounds + _WARM_UP, size.mods, epochs=_EPOCHS):
            found = spark.run(tables.merged, spool, folder, file_format, mode)
            assert found.events == size.mods, f"{size.mods} changes are in the epoch, {found.events} were merged"
            other = spark.run(tables.plain, spool, folder, file_format, newest == _EPOCHS)
            rounds.append((found, replace(other, events=found.events)))
        spark.run(tables.close_session)
    return Result.compared("merge-into", file_format, mode, rounds[_WARM_UP:], {})
