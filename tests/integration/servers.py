"""Fixtures: an emulator for a package of tests, and a new sample database for each test."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from google.api_core.exceptions import NotFound

from emulator import Emulator, SampleDatabase, find_or_start

CHURN_SECONDS = 2
MakeDatabase = Callable[..., SampleDatabase]


def running_emulator() -> Iterator[Emulator]:
    """Finds or starts an emulator whose partitions end after two to four seconds."""
    with find_or_start(churn_seconds=CHURN_SECONDS) as emulator:
        yield emulator


def databases(emulator: Emulator) -> Iterator[MakeDatabase]:
    """Creates sample databases, and drops them afterwards: full ones cost the emulator much."""
    made: list[SampleDatabase] = []

    def make(**settings: str) -> SampleDatabase:
        sample = SampleDatabase.create(emulator.host, **settings)
        made.append(sample)
        return sample

    yield make
    for sample in made:
        with suppress(NotFound):
            sample.drop()


@pytest.fixture(scope="package")
def emulator() -> Iterator[Emulator]:
    yield from running_emulator()


@pytest.fixture
def database(emulator: Emulator) -> Iterator[MakeDatabase]:
    yield from databases(emulator)
