"""An emulator, and databases that the sink writes."""

from collections.abc import Iterator

import pytest

from emulator import Emulator
from tests.integration.servers import MakeDatabase, databases, running_emulator
from tests.spark_sink.spools import SpoolMaker


@pytest.fixture(scope="package")
def emulator() -> Iterator[Emulator]:
    yield from running_emulator()


@pytest.fixture
def database(emulator: Emulator) -> Iterator[MakeDatabase]:
    yield from databases(emulator)


@pytest.fixture(params=["googlesql", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def spool(tmp_path: object) -> SpoolMaker:
    return SpoolMaker(f"{tmp_path}/spool")
