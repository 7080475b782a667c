"""Everything that this process and its children write to stderr, as lines of JSON.

A JVM's launcher, a worker of Spark and a library write lines of their own, past any logging. So the descriptor itself
is replaced by a pipe, and a thread wraps what is not JSON yet.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import orjson

from connector import log

STDERR = 2
_JOIN_TIMEOUT = 2.0
"""Seconds to wait for children that still hold the pipe, once this process has written its last line."""


@contextmanager
def lines_of_json() -> Iterator[None]:
    """While the context is open, every line on stderr is JSON, if that is how this process logs; else nothing changes.

    It must not be left before the children have written what matters: what comes later goes nowhere.
    """
    if not log.style()[0]:
        yield
        return
    sys.stderr.flush()
    before = os.dup(STDERR)
    reading, writing = os.pipe()
    os.dup2(writing, STDERR)  # inheritable, unlike the others
    os.close(writing)
    copying = threading.Thread(target=_copy, args=(reading, before), name="stderr", daemon=True)
    copying.start()
    try:
        yield
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os.dup2(before, STDERR)
        copying.join(_JOIN_TIMEOUT)


def wrapped(line: bytes) -> bytes:
    """The line if it is JSON already, or as the message of one; empty for an empty line."""
    text = line.rstrip()
    if not text or text.startswith(b'{"severity"'):
        return text
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    message = text.decode(errors="replace")
    return orjson.dumps(
        {"severity": "DEFAULT", "time": now, "message": message, "action": "output", "logger": "stderr"}
    )


def _copy(reading: int, to: int) -> None:
    with open(reading, "rb", buffering=64 * 1024) as lines:
        for line in lines:
            if known := wrapped(line):
                with suppress(OSError):  # nobody reads any more: the children must not be blocked
                    os.write(to, known + b"\n")
