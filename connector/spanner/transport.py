"""Channels to Spanner and the calls on them: all that is tuned of gRPC, in one place.

A stream is read in one of two ways. Most are waited for by asyncio, for which one that is silent costs next to
nothing. One that has much to catch up with is read by a :class:`connector.spanner.pump.Pump`, as long as there are few
of them. Whoever reads the messages need not know which.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc
import grpc.aio
import grpc.experimental

from connector.spanner.pump import Awaited, Pump

STREAMS_PER_CHANNEL = 50
"""Google's front ends queue silently at about a hundred."""

PUMPS = 32
"""Streams that are read by pumps at once.

A pump that waits costs 0.06 % of a core and 80 KiB, ten times and three times what asyncio's streams do. Of streams of
1 kB messages 32 pumps together take 8-9 us a message, one takes 6-7, asyncio 18-20.
"""

_WINDOW = 256 * 1024
_PUMP_WINDOW = 512 * 1024
"""Bytes that Spanner may send to a stream before they are read.

gRPC would choose itself (``bdp_probe``), and lets a stream that is not read grow to what the network can carry: on
loopback one held 20 to 135 MB, and 49 of them made a fiftieth stream of their channel seven times as slow. With a
fixed window a stream holds the window and some 100 KB. The price is that no more than a window comes each round trip:
at 2 ms a pump read 49 MB/s of one stream with 256 KiB, 77 with 1 MiB and 14 with 64 KiB, gRPC's default. At 20 ms eight
awaited streams of one channel, which share its window, read 12, 34 and 3.
"""

_KEEPALIVE: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 180_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # keepalive_timeout_ms is not heeded: a ping had a minute (tried)
)
"""A connection that brings nothing for so long is pinged, and ends with UNAVAILABLE if it does not answer in time: so a
server that is slow, however patiently its first message is waited for, is told from one that is not there any more.

Not more often: gRPC's own servers want five minutes between pings while there is no data, forgive two that come sooner,
and end the connection at the third. Pings after 30 s ended one that was silent for 180 s (tried); these would do so
after 720 s, when no message is waited for any more.
"""

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),  # 4 MB is the default, and a record may be larger
    ("grpc.use_local_subchannel_pool", 1),  # or all channels share one connection
    *_KEEPALIVE,
)
"""Of all channels. What else was tried made no difference that could be measured, at 1 and at 17 kB a message: frames
of 64 KiB and 1 MiB, larger reads from the socket, ``optimization_target``, ``minimal_stack``, no retries."""

_AWAITED = (("grpc.http2.lookahead_bytes", _WINDOW),)
_PUMPED = (
    ("grpc.http2.lookahead_bytes", _PUMP_WINDOW),
    (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),  # a fifth of the time, at best
)

Take = Callable[[], Awaitable[list[bytes]]]
"""Waits for a stream's next messages, and gives those that have come; none when it has ended with OK."""

_Channel = TypeVar("_Channel", grpc.Channel, grpc.aio.Channel)


@dataclass(slots=True)
class _Held(Generic[_Channel]):
    channel: _Channel
    streams: int = 0


class Transport:
    """The channels to one host.

    Args:
        host: ``host:port``.
        credentials: None for a connection without encryption.
        user_agent: what it calls itself.
    """

    def __init__(self, host: str, credentials: grpc.ChannelCredentials | None, *, user_agent: str) -> None:
        self._host = host
        self._credentials = credentials
        self._options = (*_OPTIONS, ("grpc.primary_user_agent", user_agent))
        self._awaited: list[_Held[grpc.aio.Channel]] = []
        self._pumped: list[_Held[grpc.Channel]] = []
        self._pumps: set[Pump] = set()
        self._calls: set[Awaited] = set()
        self._threads = ThreadPoolExecutor(PUMPS, "pump")

    async def unary(self, method: str, request: bytes, metadata: tuple[tuple[str, str], ...], within: float) -> bytes:
        """The answer of a method that answers once.

        Raises:
            grpc.RpcError: as :func:`connector.spanner.errors.classify` explains.
        """
        with _leased(self._awaited, STREAMS_PER_CHANNEL, self._open_awaited) as channel:
            answer: bytes = await channel.unary_unary(method)(request, metadata=metadata, timeout=within)
            return answer

    @asynccontextmanager
    async def streaming(
        self, method: str, request: bytes, metadata: tuple[tuple[str, str], ...], *, behind: bool
    ) -> AsyncIterator[Take]:
        """A stream of messages while the context is open; leaving it cancels the call.

        Args:
            method: the method's path.
            request: its request.
            metadata: its headers.
            behind: whether much is to be expected at once.
        """
        if behind and len(self._pumps) < PUMPS:
            # a channel for each: in a shared one they wait for its lock, which took 1.3 times as long
            with _leased(self._pumped, 1, self._open_pumped) as channel:
                pump = Pump(channel.unary_stream(method)(request, metadata=metadata), self._threads)
                self._pumps.add(pump)
                try:
                    yield pump.take
                finally:
                    self._pumps.discard(pump)
                    await pump.end()
        else:
            with _leased(self._awaited, STREAMS_PER_CHANNEL, self._open_awaited) as channel:
                awaited = Awaited(channel.unary_stream(method)(request, metadata=metadata))
                self._calls.add(awaited)
                try:
                    yield awaited.take
                finally:
                    self._calls.discard(awaited)
                    await awaited.end()

    async def close(self) -> None:
        """Ends all calls and closes all channels."""
        for pump in tuple(self._pumps):
            await pump.end()
        for call in tuple(self._calls):  # before grpcio 1.83 a channel that is closed leaves its calls open
            await call.end()
        self._threads.shutdown()
        for pumped in self._pumped:
            pumped.channel.close()
        for awaited in self._awaited:
            await awaited.channel.close()

    def _open_awaited(self) -> grpc.aio.Channel:
        options = (*self._options, *_AWAITED)
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._host, options=options)
        return grpc.aio.secure_channel(self._host, self._credentials, options=options)

    def _open_pumped(self) -> grpc.Channel:
        options = (*self._options, *_PUMPED)
        if self._credentials is None:
            return grpc.insecure_channel(self._host, options=options)
        return grpc.secure_channel(self._host, self._credentials, options=options)


@contextmanager
def _leased(channels: list[_Held[_Channel]], most: int, new: Callable[[], _Channel]) -> Iterator[_Channel]:
    """A channel that carries less than ``most`` streams, with one more while the context is open."""
    for held in channels:
        if held.streams < most:
            break
    else:
        held = _Held(new())
        channels.append(held)
    held.streams += 1
    try:
        yield held.channel
    finally:
        held.streams -= 1
