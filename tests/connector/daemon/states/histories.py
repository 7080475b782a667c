"""A history that a scripted server serves while a daemon reads it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from connector.core.timestamps import SECOND
from emulator import SampleDatabase, Scenario, ScriptedServer
from tests.emulator.subjects import sample_of


@contextmanager
def served(seconds: float, mode: str = "IMMUTABLE_KEY_RANGE") -> Iterator[tuple[Scenario, SampleDatabase]]:
    """A history that is served as it happens, for so many seconds."""
    scenario = Scenario.generate(
        11,
        origin=time.time_ns() - 2 * SECOND,
        seconds=seconds,
        dialect="googlesql",
        mode=mode,  # type: ignore[arg-type]
        value_capture_type="NEW_ROW",
        schema_change=False,
    )
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        yield scenario, sample_of(server)
