"""Channels to Spanner and the calls on them: every tuned option of gRPC, in one place.

A stream is read in one of two ways. Most are awaited by asyncio, where a silent stream costs next to nothing. A stream
with a backlog is read by a :class:`connector.spanner.pump.Pump`, as long as there are few of these. The reader of the
messages does not see the difference.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc
import grpc.aio
import grpc.experimental

from connector.proxies import DIRECT_CHANNEL
from connector.spanner.pump import Awaited, GatheredMessages, Pump

STREAMS_PER_CHANNEL = 50
"""Google's front ends queue silently at about a hundred."""

PUMPS = 32
"""Streams that are read by pumps at once, at most.

A waiting pump costs more processor time and memory than a stream of asyncio, and more pumps take more time a message,
but fewer than half of asyncio's.
"""

_WINDOW = 256 * 1024
_PUMP_WINDOW = 512 * 1024
"""Bytes that Spanner may send to a stream before they are read.

By default gRPC measures the network (``bdp_probe``) and lets a stream that is not read grow to what the network can
carry. On loopback that is tens of megabytes, which also slow down the other streams of the channel. With a fixed window
a stream holds the window and some 100 KB. In return no more than a window is sent each round trip. So gRPC's default of
64 KiB would be too slow, and a larger window would be faster only on networks with a long round trip.
"""

_KEEPALIVE: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 180_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # keepalive_timeout_ms is ignored: a ping had a minute (tried)
)
"""A connection that is silent for this long is pinged, and ends with UNAVAILABLE if it does not answer in time. This
distinguishes a dead server from one that is slow with its first message, however long the query's timeout.

Pings must not be more frequent: gRPC's own servers require five minutes between pings without data, tolerate two that
come sooner, and close the connection at the third. With these values that is after 720 s, when the longest timeout of a
query has passed.
"""

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),  # the default is 4 MB, and a record may be larger
    ("grpc.use_local_subchannel_pool", 1),  # otherwise all channels share one connection
    *_KEEPALIVE,
)
"""The options of all channels. These made no measurable difference: frames of 64 KiB and 1 MiB, larger reads from the
socket, ``optimization_target``, ``minimal_stack``, no retries."""

_AWAITED = (("grpc.http2.lookahead_bytes", _WINDOW),)
_PUMPED = (
    ("grpc.http2.lookahead_bytes", _PUMP_WINDOW),
    (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
)

Take = Callable[[], Awaitable[list[bytes]]]
"""Waits for a stream's next messages and returns those that have arrived; none when it has ended with OK."""

_Channel = TypeVar("_Channel", grpc.Channel, grpc.aio.Channel)


@dataclass(slots=True)
class _Held(Generic[_Channel]):
    channel: _Channel
    streams: int = 0


class Transport:
    """The channels to one host.

    Args:
        host: ``host:port``.
        credentials: None for a connection without encryption, which uses no proxy: to an emulator, or Spanner Omni.
        user_agent: the client's name in its calls.
    """

    def __init__(self, host: str, credentials: grpc.ChannelCredentials | None, *, user_agent: str) -> None:
        self._host = host
        self._credentials = credentials
        self._user_agent = user_agent
        self._awaited: list[_Held[grpc.aio.Channel]] = []
        self._pumped: list[_Held[grpc.Channel]] = []
        self._pumps: set[GatheredMessages] = set()
        self._calls: set[GatheredMessages] = set()
        self._threads = ThreadPoolExecutor(PUMPS, "pump")

    async def accepts(self, within: float, silent: float) -> str:
        """The reason why the host accepts no connection; empty if it accepts one.

        Args:
            within: seconds for a host that refuses connections.
            silent: seconds, no fewer, for one that does not answer yet: a machine may be busy.
        """
        with _leased(self._awaited, STREAMS_PER_CHANNEL, self._open_awaited) as channel:
            ready = asyncio.create_task(channel.channel_ready())
            try:
                await asyncio.wait({ready}, timeout=within)
                if not ready.done() and channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    await asyncio.wait({ready}, timeout=silent - within)
                if ready.done():
                    return ""
                if channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    return "something accepts connections there and does not speak gRPC"
                return "nothing that speaks gRPC listens there"
            finally:
                ready.cancel()
                await asyncio.wait({ready})

    async def unary(self, method: str, request: bytes, metadata: tuple[tuple[str, str], ...], within: float) -> bytes:
        """Calls a method that returns one message.

        Raises:
            grpc.RpcError: the call failed; see :func:`connector.spanner.errors.classify`.
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
            behind: whether the stream has a backlog.
        """
        is_pumped = behind and len(self._pumps) < PUMPS
        if is_pumped:  # a channel for each: pumps that share one wait for its lock
            lease, readings = _leased(self._pumped, 1, self._open_pumped), self._pumps
        else:
            lease, readings = _leased(self._awaited, STREAMS_PER_CHANNEL, self._open_awaited), self._calls
        with lease as channel:
            call = channel.unary_stream(method)(request, metadata=metadata)
            reading = Pump(call, self._threads) if is_pumped else Awaited(call)
            readings.add(reading)
            try:
                yield reading.take
            finally:
                readings.discard(reading)
                await reading.end()

    async def close(self) -> None:
        """Ends all calls and closes all channels."""
        for readings in (self._pumps, self._calls):
            for reading in tuple(readings):  # before grpcio 1.83 closing a channel leaves its calls open
                await reading.end()
        self._threads.shutdown()
        for pumped in self._pumped:
            pumped.channel.close()
        for awaited in self._awaited:
            await awaited.channel.close()

    def _open_awaited(self) -> grpc.aio.Channel:
        options = (*_OPTIONS, *_AWAITED, ("grpc.primary_user_agent", self._user_agent))
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._host, options=(*options, *DIRECT_CHANNEL))
        return grpc.aio.secure_channel(self._host, self._credentials, options=options)

    def _open_pumped(self) -> grpc.Channel:
        return blocking_channel(self._host, self._credentials, user_agent=self._user_agent)


def blocking_channel(host: str, credentials: grpc.ChannelCredentials | None, *, user_agent: str) -> grpc.Channel:
    """A channel whose streams are iterated by threads; arguments as of :class:`Transport`."""
    options = (*_OPTIONS, *_PUMPED, ("grpc.primary_user_agent", user_agent))
    if credentials is None:
        return grpc.insecure_channel(host, options=(*options, *DIRECT_CHANNEL))
    return grpc.secure_channel(host, credentials, options=options)


@contextmanager
def _leased(channels: list[_Held[_Channel]], most: int, new: Callable[[], _Channel]) -> Iterator[_Channel]:
    """A channel with fewer than ``most`` streams, which has one more while the context is open."""
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
