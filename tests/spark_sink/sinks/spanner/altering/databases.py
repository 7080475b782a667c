"""The two databases of a seed."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from emulator import SampleDatabase
from tests.spark_sink.sinks.spanner.altering.campaign import ROUNDS, Altering
from tests.spark_sink.sinks.spanner.samples import empty

CAPTURES = ("NEW_ROW", "OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES", "NEW_VALUES")

_STREAM = {
    "googlesql": "CREATE CHANGE STREAM Everything FOR ALL OPTIONS (value_capture_type = '{}')",
    "postgresql": "CREATE CHANGE STREAM \"Everything\" FOR ALL WITH (value_capture_type = '{}')",
}


def between_two(
    host: str, dialect: str, folder: Path, mode: str, seed: int, done: Counter[str], rounds: int = ROUNDS
) -> str:
    """Runs a seed between two new databases; returns what is wrong, or an empty text, and adds to what is counted."""
    capture = Random(seed).choice(CAPTURES)
    with ExitStack() as stack:
        source, replica = (stack.enter_context(_empty_database(host, dialect)) for _ in range(2))
        source.run_ddl(_STREAM[dialect].format(capture))
        altering = Altering(replace(source, value_capture_type=capture), replica, folder, mode, seed)
        wrong = altering.run(rounds)
        done += altering.done
    return f"{capture}: {wrong}; DDL: {altering.history.statements}" if wrong else ""


@contextmanager
def _empty_database(host: str, dialect: str) -> Iterator[SampleDatabase]:
    sample = SampleDatabase.create(host, dialect=dialect)
    try:
        empty(sample)
        yield sample
    finally:
        sample.drop()
