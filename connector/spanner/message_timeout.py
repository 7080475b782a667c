"""Limits how long a query waits for each message, as :func:`asyncio.timeout` does, at a tenth of the cost of each.

One timer serves all waits of a query. When it fires it checks when the present wait started, and is set again for the
time that this wait has left. Between two waits it does nothing, and is set again by the next.
"""

import asyncio
from types import TracebackType

LATE = 5.0
"""A timer that fires this many seconds too late, or more, means that the process itself was suspended."""


class MessageTimeout:
    """Surrounds each wait: ``with timeout:``; call :meth:`close` at the end. For the waits of one task at a time.

    Args:
        limit: seconds that a wait may take. One that takes longer is cancelled, and raises TimeoutError. It may be
            changed between two waits.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        """The task that waits; None between two waits."""
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False
        self._cancelling = 0

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        self._since = self._loop.time()
        if self._timer is not None and self._timer.when() > self._since + self.limit:
            self._timer.cancel()  # it was set when waits could take longer
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._since + self.limit, self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._expired:
            self._expired = False
            assert task is not None
            if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def close(self) -> None:
        """Cancels the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        assert self._timer is not None
        late = self._loop.time() - self._timer.when()
        self._timer = None
        if self._task is None:
            return
        if late > LATE:
            self._since = self._loop.time()  # this process was suspended; what has arrived meanwhile is not read yet
        due = self._since + self.limit
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
            return
        self._expired = True
        self._task.cancel()
