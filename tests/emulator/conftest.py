"""An emulator with churn for this folder's tests, and databases with a known history on it and on scripted servers."""

from collections.abc import Iterator
from typing import get_args

import pytest

from emulator import Emulator, EmulatorNotFoundError, find_or_start
from emulator.workload.tables import Dialect
from tests.emulator.subjects import Subject, Subjects, officials, scripteds


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    try:
        with find_or_start(churn_seconds=2) as running:
            yield running
    except EmulatorNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", name="officials")
def _officials(emulator: Emulator) -> Iterator[Subjects]:
    with officials(emulator) as subjects:
        yield subjects


@pytest.fixture(scope="session", name="scripteds")
def _scripteds() -> Iterator[Subjects]:
    with scripteds() as subjects:
        yield subjects


@pytest.fixture(params=get_args(Dialect))
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found: Dialect = request.param
    return found


@pytest.fixture(params=[pytest.param("official", marks=pytest.mark.emulator), "scripted"])
def subject(request: pytest.FixtureRequest, dialect: Dialect) -> Subject:
    """The database of each server, in each dialect."""
    subjects: Subjects = request.getfixturevalue(f"{request.param}s")
    return subjects[dialect]


@pytest.fixture
def pair(dialect: Dialect, request: pytest.FixtureRequest) -> tuple[Subject, Subject]:
    """The official emulator's database and the scripted one, in each dialect."""
    both: list[Subjects] = [request.getfixturevalue(name) for name in ("officials", "scripteds")]
    return both[0][dialect], both[1][dialect]
