"""The connections of this process over which rows are appended. They stay open, as BigQuery recommends.

An AppendRows call is a connection. It carries any number of requests, one after the other; for default streams, also
those of several tables. Spark's executors reuse their Python processes, and so these connections. All default streams
of a dataset share one, because a dataset is in one region; a pending stream has its own. A connection that had an
error, was idle for long, or was opened for other columns of a table is closed, and the next request opens another. The
:data:`KEPT` most recently used stay open.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Protocol

from google.api_core import exceptions
from google.cloud.bigquery_storage_v1 import types

KEPT = 32
"""The most connections that a process keeps open."""

IDLE = 240.0
"""Seconds after which an unused connection is closed; BigQuery closes it after some minutes."""

_RESPONSE_TIMEOUT = 120.0
"""Seconds that a response may take."""


class Responses(Protocol):
    """The responses of a call."""

    def __next__(self) -> types.AppendRowsResponse: ...

    def cancel(self) -> object:
        """Ends the call."""


Call = Callable[[Iterator[types.AppendRowsRequest]], Responses]
"""Starts an AppendRows call with the requests of an iterator, which may block for more; returns its responses."""


class Connection:
    """One AppendRows call, with one request at a time; it starts with its first request.

    Args:
        call: starts it.
    """

    def __init__(self, call: Call) -> None:
        self._requests: SimpleQueue[types.AppendRowsRequest | None] = SimpleQueue()
        self._call = call
        self._responses: Responses | None = None
        self._columns: dict[str, bytes] = {}
        self._last = ""

    def fits(self, stream: str, descriptor: bytes) -> bool:
        """True if it was not opened for other columns of the stream's table: a connection cannot change them."""
        return self._columns.get(stream, descriptor) == descriptor

    def send(self, request: types.AppendRowsRequest, descriptor: bytes) -> types.AppendRowsResponse:
        """Sends a request, without its columns if the request before had the same; returns the response.

        Raises:
            GoogleAPICallError: the call has ended, or there is no response in time.
        """
        stream = request.write_stream
        if stream == self._last:
            del request.proto_rows.writer_schema
        self._columns[stream], self._last = descriptor, stream
        self._requests.put(request)
        if self._responses is None:  # with a request queued, because a call may wait for one before it starts
            self._responses = self._call(iter(self._requests.get, None))
        late = threading.Timer(_RESPONSE_TIMEOUT, self._responses.cancel)
        late.daemon = True
        late.start()
        try:
            return next(self._responses)
        except StopIteration:
            raise exceptions.ServiceUnavailable("the call ended without a response") from None
        finally:
            late.cancel()

    def close(self) -> None:
        """Ends the call."""
        self._requests.put(None)
        if self._responses is not None:
            self._responses.cancel()


class Connections:
    """Open connections, by key.

    Args:
        kept: the most that stay open.
        idle: seconds after which an unused one is closed.
        clock: seconds.
    """

    def __init__(self, kept: int = KEPT, idle: float = IDLE, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept = kept
        self._idle = idle
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[object, ...], tuple[Connection, float]] = OrderedDict()

    @contextmanager
    def taken(self, key: tuple[object, ...], stream: str, descriptor: bytes, call: Call) -> Iterator[Connection]:
        """A connection for exclusive use; it stays open unless the context ends with an exception."""
        connection = self._take(key)
        if connection is not None and not connection.fits(stream, descriptor):
            connection.close()
            connection = None
        if connection is None:
            connection = Connection(call)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._keep(key, connection)

    def close(self, key: tuple[object, ...]) -> None:
        """Closes a connection that is no longer needed."""
        connection = self._take(key)
        if connection is not None:
            connection.close()

    def _take(self, key: tuple[object, ...]) -> Connection | None:
        with self._lock:
            found = self._open.pop(key, None)
            before = self._clock() - self._idle
            idle = [each for each, (_, used) in self._open.items() if used < before]
            closed = [self._open.pop(each)[0] for each in idle]
        if found is not None and found[1] < before:
            closed.append(found[0])
            found = None
        for connection in closed:
            connection.close()
        return None if found is None else found[0]

    def _keep(self, key: tuple[object, ...], connection: Connection) -> None:
        with self._lock:
            surplus = [self._open.pop(key)[0]] if key in self._open else []
            self._open[key] = (connection, self._clock())
            while len(self._open) > self._kept:
                surplus.append(self._open.popitem(last=False)[1][0])
        for each in surplus:
            each.close()


_OF_PROCESS: dict[int, Connections] = {}


def connections() -> Connections:
    """The connections of this process; a forked child starts with none."""
    return _OF_PROCESS.setdefault(os.getpid(), Connections())
