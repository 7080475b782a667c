"""The wait of a sink's process for the event that ends it; while no micro-batch runs it looks at intervals."""

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TypeVar

from connector.errors import SpoolError

INTERVAL = 2.0
"""Seconds between two looks."""

E = TypeVar("E")


def awaited(events: "SimpleQueue[E]", busy: Lock, *looks: Callable[[], None]) -> E:
    """Waits for an event; meanwhile looks at intervals, unless a micro-batch runs.

    A spool that cannot be read just now must not end a sink that has nothing to do: a micro-batch says so.

    Args:
        events: of the sink's process.
        busy: is held while a micro-batch runs.
        looks: look for work that is due, and do it.

    Raises:
        PySparkException, Py4JError: from a look.
    """
    while True:
        with suppress(Empty):
            return events.get(timeout=INTERVAL)
        if busy.acquire(blocking=False):
            try:
                for look in looks:
                    with suppress(SpoolError, OSError):
                        look()
            finally:
                busy.release()
