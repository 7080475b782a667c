"""One emulator with churn for the tests of this folder."""

from collections.abc import Iterator

import pytest

from emulator import Emulator, EmulatorNotFoundError, find_or_start


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    try:
        with find_or_start(churn_seconds=2) as running:
            yield running
    except EmulatorNotFoundError as error:
        pytest.skip(str(error))
