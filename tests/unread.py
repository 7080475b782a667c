"""A standard stream whose reader has gone, in this process."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def unread(name: str) -> Iterator[None]:
    """Lets `stdout` or `stderr` be a pipe that nobody reads."""
    before = getattr(sys, name)
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", encoding="utf-8")
    setattr(sys, name, stream)
    try:
        yield
    finally:
        setattr(sys, name, before)
        with suppress(OSError):  # what is still in its buffer
            stream.close()
