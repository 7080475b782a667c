"""A thread that works for as long as a context is open: a load on a database, or looks at a destination."""

import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self


class BackgroundThread(ABC):
    """Runs `_run` in a thread for as long as the context is open; an error of it is raised when the context ends.

    `_run` returns soon after `_stop` is set.
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=type(self).__name__)
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        self._running = self._thread.submit(self._run)
        return self

    def __exit__(self, *args: object) -> None:
        self._stop.set()
        self._thread.shutdown()
        if self._running is not None and args[0] is None:
            self._running.result()

    def is_running(self) -> bool:
        """True if `_run` has neither returned nor failed."""
        return self._running is not None and not self._running.done()

    @abstractmethod
    def _run(self) -> None: ...
