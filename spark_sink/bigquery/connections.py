"""The connections of this process over which rows go to BigQuery: kept, for BigQuery wants them to live for minutes.

An AppendRows call is a connection. One carries any number of requests, one after the other; where they go to default
streams, also those of several tables. Spark's executors use their Python processes again, and so the connections that
lie here: for default streams one for each dataset is enough (a dataset is in one region), a pending stream has its
own. A connection that met an error, has been idle, or was opened for other columns of a table is closed, and the next
request opens another. At most :data:`KEPT` are kept, the ones used last.
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

from spark_sink.bigquery.table import BigQueryTarget

KEPT = 32
"""Connections that a process keeps open."""

IDLE = 240.0
"""Seconds after which a connection that nobody used is closed; BigQuery closes it after some minutes."""

_ANSWER = 120.0
"""Seconds that an answer may take."""


class Responses(Protocol):
    """The answers of a call, as they come."""

    def __next__(self) -> types.AppendRowsResponse: ...

    def cancel(self) -> object:
        """Ends the call."""


Call = Callable[[Iterator[types.AppendRowsRequest]], Responses]
"""Begins an AppendRows call with the requests of an iterator, which may wait for more; its answers."""


class Connection:
    """One AppendRows call, of which one request at a time awaits its answer; it begins with its first request.

    Args:
        call: begins it.
    """

    def __init__(self, call: Call) -> None:
        self._requests: SimpleQueue[types.AppendRowsRequest | None] = SimpleQueue()
        self._call = call
        self._responses: Responses | None = None
        self._columns: dict[str, bytes] = {}
        self._last = ""

    def fits(self, stream: str, descriptor: bytes) -> bool:
        """Whether it was not opened for other columns of the stream's table, of which BigQuery would not hear here."""
        return self._columns.get(stream, descriptor) == descriptor

    def send(self, request: types.AppendRowsRequest, descriptor: bytes) -> types.AppendRowsResponse:
        """Sends a request, without its columns where the one before had the same; its answer.

        Raises:
            GoogleAPICallError: the call has ended, or there is no answer in time.
        """
        stream = request.write_stream
        if stream == self._last:
            del request.proto_rows.writer_schema
        self._columns[stream], self._last = descriptor, stream
        self._requests.put(request)
        if self._responses is None:  # now that it has a request: one that waits for an answer as it begins will get it
            self._responses = self._call(iter(self._requests.get, None))
        late = threading.Timer(_ANSWER, self._responses.cancel)
        late.daemon = True
        late.start()
        try:
            return next(self._responses)
        except StopIteration:
            raise exceptions.ServiceUnavailable("the call ended without an answer") from None
        finally:
            late.cancel()

    def close(self) -> None:
        """Ends the call."""
        self._requests.put(None)
        if self._responses is not None:
            self._responses.cancel()


class Connections:
    """Connections by what they are for.

    Args:
        kept: how many stay open.
        idle: seconds after which one is not used again.
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
        """A connection that nobody else uses meanwhile; it is kept unless the context ends with an exception."""
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
        """Closes a connection that is needed no more."""
        connection = self._take(key)
        if connection is not None:
            connection.close()

    def close_all(self) -> None:
        """Closes those that nobody uses at the moment."""
        with self._lock:
            open_now, self._open = list(self._open.values()), OrderedDict()
        for connection, _ in open_now:
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
    """Those of this process: a child that was forked has none."""
    return _OF_PROCESS.setdefault(os.getpid(), Connections())


def shared(target: BigQueryTarget, dataset: str) -> tuple[object, ...]:
    """What the connection for default streams of a dataset's tables is known by."""
    return (target, dataset)


def own(target: BigQueryTarget, stream: str) -> tuple[object, ...]:
    """What the connection of a pending stream is known by."""
    return (target, "", stream)
