"""Reads one query of one partition. It does not know who runs it, nor other partitions.

The caller pulls: while it does not, gRPC's flow control stops the server, and the timeout does not run. The timeout
runs only while a message is waited for: a stream that is silent for several heartbeats is broken, even if its
connection looks alive. A server with a large backlog may be slow, though, and a new query would only make it start
over. So the timeout doubles after each query of a partition that has timed out. HTTP/2's pings distinguish a dead
connection from a slow server (:mod:`connector.spanner.transport`).
"""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from connector.config.address import DatabaseAddress
from connector.core.changes import Changes
from connector.core.dialects import BY_NAME, Dialect
from connector.core.records import function_of, timestamp_of, token_of
from connector.core.timestamps import SECOND, format_rfc3339
from connector.spanner.client import INT64, STRING, TIMESTAMP, Parameter, SpannerClient
from connector.spanner.decoding.decoder import Decoder, Item, decoder
from connector.spanner.message_timeout import MessageTimeout

SILENT_HEARTBEATS = 5
SILENT_AT_LEAST = 30 * SECOND
SILENT_AT_MOST = 600 * SECOND
"""The longest timeout, unless a few heartbeats are longer."""

BEHIND = 10 * SECOND
"""A query that starts further than this before the present has a backlog."""


class SilentStreamError(Exception):
    """A query returned no message for several heartbeats."""


@dataclass(frozen=True, slots=True)
class PartitionQuery:
    """A query of a partition: from ``start`` to ``end``, both inclusive, Unix nanoseconds.

    ``token`` is the partition's id, which names its read function if the change stream has several.
    ``timeouts`` is how many of the partition's queries in a row before it timed out without moving its progress.
    """

    token: str
    start: int
    end: int | None
    timeouts: int = 0


def patience(heartbeat: int, timeouts: int = 0) -> int:
    """The longest time to wait for a message, in nanoseconds: twice as long after each query that timed out.

    Args:
        heartbeat: the stream's, in nanoseconds.
        timeouts: as of :class:`PartitionQuery`.
    """
    least = max(SILENT_AT_LEAST, SILENT_HEARTBEATS * heartbeat)
    return max(least, min(least << min(timeouts, 10), SILENT_AT_MOST))


class SendsQueries(Protocol):
    """Sends partitions' queries, in this process or in others."""

    def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        """As :meth:`PartitionQueries.read`."""


class PartitionQueries:
    """Sends the queries of a change stream.

    Args:
        client: the database's connection.
        dialect: the database's.
        change_stream: its name, checked to be an identifier.
        partition_mode: its partition mode.
        heartbeat: nanoseconds.
        decoder: makes a decoder for each query.
        clock: Unix nanoseconds, for read timestamps.
        behind: whether queries have a backlog; None if those do that start long before the present.
    """

    def __init__(
        self,
        client: SpannerClient,
        dialect: Dialect,
        change_stream: str,
        partition_mode: str,
        *,
        heartbeat: int,
        decoder: Callable[[], Decoder],
        clock: Callable[[], int],
        behind: bool | None = None,
    ) -> None:
        self._client = client
        self._statement = partial(dialect.query, change_stream, partition_mode)
        self._names = dialect.parameters
        self._heartbeat = heartbeat
        self._decoder = decoder
        self._clock = clock
        self._behind = behind

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        """The records of the messages, in order, as they arrive; ends when the query ends with OK.

        Raises:
            grpc.RpcError: the call failed; see :func:`connector.spanner.errors.classify`.
            SilentStreamError: no message came in time.
            UnknownRecordError: a row is not a change record of a known format.
        """
        start, end, token, heartbeat = self._names
        parameters = {
            start: Parameter(format_rfc3339(query.start), TIMESTAMP),
            end: Parameter(None if query.end is None else format_rfc3339(query.end), TIMESTAMP),
            token: Parameter(token_of(query.token) or None, STRING),
            heartbeat: Parameter(str(self._heartbeat * 1000 // SECOND), INT64),
        }
        sql = self._statement(function_of(query.token))
        decode = self._decoder()
        behind = self._clock() - query.start > BEHIND if self._behind is None else self._behind
        with closing(MessageTimeout(patience(self._heartbeat, query.timeouts) / SECOND)) as timeout:
            async with aclosing(self._client.stream(sql, parameters, behind=behind)) as stream:
                while True:
                    try:
                        with timeout:
                            messages = await anext(stream, None)
                    except TimeoutError as error:
                        raise SilentStreamError(f"no message for {timeout.limit:.0f} s") from error
                    if messages is None:
                        return
                    items = decode(messages, self._clock())
                    if items:
                        if query.timeouts and _instant(items[-1]) > query.start + 1:  # the progress has moved
                            timeout.limit = patience(self._heartbeat) / SECOND
                        yield items


def _instant(item: Item) -> int:
    """The last timestamp of an item: everything before it is proved by it."""
    return item.last if isinstance(item, Changes) else timestamp_of(item)


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """A change stream, as a value that another process gets in order to query it.

    Attributes:
        database: its database.
        rpc_priority: low, medium or high.
        dialect: the name of the database's dialect.
        change_stream: its name, checked to be an identifier.
        partition_mode: its partition mode.
        heartbeat: nanoseconds.
    """

    database: DatabaseAddress
    rpc_priority: str
    dialect: str
    change_stream: str
    partition_mode: str
    heartbeat: int

    def client(self) -> SpannerClient:
        """A connection to the database."""
        return SpannerClient(self.database, self.rpc_priority)

    def queries(self, client: SpannerClient, *, behind: bool | None = None) -> PartitionQueries:
        """Its queries, over that connection; ``behind`` as of :class:`PartitionQueries`."""
        dialect = BY_NAME[self.dialect]
        return PartitionQueries(
            client,
            dialect,
            self.change_stream,
            self.partition_mode,
            heartbeat=self.heartbeat,
            decoder=decoder(dialect, self.partition_mode, self.database.columns),
            clock=time.time_ns,
            behind=behind,
        )
