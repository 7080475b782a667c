"""Readers beside a sink."""

import threading
import time
from collections.abc import Iterator

_PAUSE = 5
"""The pause of a reader, to the time that a read takes."""


def reads(ended: threading.Event) -> Iterator[None]:
    """Yields for each read until ``ended`` is set, with pauses that leave most of the time to the sink."""
    pause = 0.0
    while not ended.wait(pause):
        started = time.monotonic()
        yield
        pause = _PAUSE * (time.monotonic() - started)
