"""Reads one query of one partition. It knows nothing of who runs it, nor of other partitions.

The caller pulls: while it does not, gRPC's flow control holds the server back, and the watchdog sleeps. The watchdog
wakes only while a message is waited for: a stream that stays silent for several heartbeats is broken, however
alive its connection looks. A server with a large backlog may be slow, though, and asking it anew would only make it
begin anew: so each query of a partition that nothing came of is followed by one with twice the patience. A connection
that is dead is told from a server that is slow by HTTP/2's pings (:mod:`connector.spanner.transport`).
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing
from dataclasses import dataclass

from connector.core.changes import Changes
from connector.core.dialects import Dialect
from connector.core.records import INITIAL_TOKEN, timestamp_of
from connector.core.timestamps import SECOND, format_rfc3339
from connector.decoding.decoder import Decoder, Item
from connector.spanner.client import INT64, STRING, TIMESTAMP, Parameter, SpannerClient
from connector.spanner.watchdog import Watchdog

SILENT_HEARTBEATS = 5
SILENT_AT_LEAST = 30 * SECOND
SILENT_AT_MOST = 600 * SECOND
"""To which patience grows, unless a few heartbeats are longer than that."""

BEHIND = 10 * SECOND
"""How far before the present a query starts that has much to catch up with."""


class SilentStreamError(Exception):
    """No message came for several heartbeats."""


@dataclass(frozen=True, slots=True)
class PartitionQuery:
    """A query of a partition: from ``start`` to ``end``, both inclusive, nanoseconds since the epoch.

    ``in_vain`` is how many of the partition's queries before it were given up without having moved its progress.
    """

    token: str
    start: int
    end: int | None
    in_vain: int = 0


def patience(heartbeat: int, in_vain: int = 0) -> int:
    """How long a message is waited for, in nanoseconds: twice as long after each query that nothing came of.

    Args:
        heartbeat: the stream's, in nanoseconds.
        in_vain: as of :class:`PartitionQuery`.
    """
    least = max(SILENT_AT_LEAST, SILENT_HEARTBEATS * heartbeat)
    return max(least, min(least << min(in_vain, 10), SILENT_AT_MOST))


class PartitionQueries:
    """Sends the queries of a change stream.

    Args:
        client: the database's connection.
        dialect: the database's.
        change_stream: its name, checked to be an identifier.
        partition_mode: its partition mode.
        heartbeat: nanoseconds.
        decoder: makes a decoder for each query.
        clock: nanoseconds since the epoch, for read timestamps.
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
    ) -> None:
        self._client = client
        self._sql = dialect.query(change_stream, partition_mode)
        self._names = dialect.parameters
        self._heartbeat = heartbeat
        self._decoder = decoder
        self._clock = clock

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        """The records of the messages, in order, as they come; ends when the query ends with OK.

        Raises:
            grpc.RpcError: as :func:`connector.spanner.faults.fault` explains.
            SilentStreamError: the watchdog gave up on it.
            UnknownRecordError: a row that no version of the format describes.
        """
        start, end, token, heartbeat = self._names
        parameters = {
            start: Parameter(format_rfc3339(query.start), TIMESTAMP),
            end: Parameter(None if query.end is None else format_rfc3339(query.end), TIMESTAMP),
            token: Parameter(None if query.token == INITIAL_TOKEN else query.token, STRING),
            heartbeat: Parameter(str(self._heartbeat * 1000 // SECOND), INT64),
        }
        decode = self._decoder()
        behind = self._clock() - query.start > BEHIND
        with closing(Watchdog(patience(self._heartbeat, query.in_vain) / SECOND)) as watchdog:
            async with aclosing(self._client.stream(self._sql, parameters, behind=behind)) as stream:
                while True:
                    try:
                        with watchdog:
                            messages = await anext(stream, None)
                    except TimeoutError as error:
                        raise SilentStreamError(f"no message for {watchdog.limit:.0f} s") from error
                    if messages is None:
                        return
                    items = decode(messages, self._clock())
                    if items:
                        if query.in_vain and _instant(items[-1]) > query.start + 1:  # the progress has moved
                            watchdog.limit = patience(self._heartbeat) / SECOND
                        yield items


def _instant(item: Item) -> int:
    """What an item proves everything before, or tells of."""
    return item.last if isinstance(item, Changes) else timestamp_of(item)
