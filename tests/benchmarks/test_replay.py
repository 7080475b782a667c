"""A standard gRPC client receives everything that is replayed, whatever its windows."""

import asyncio
from collections.abc import Iterator

import grpc
import grpc.aio
import pytest

from benchmarks.replay.messages import Replay
from benchmarks.replay.server import ReplayServer, replaying
from tests.benchmarks.query import CREATE, STREAMING, PartialResultSet, Session, answer, create_session, query

REPLAY = Replay("googlesql", "16/msg", partitions=3)
SPAN = REPLAY.span(60_000)
_NARROW = (("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0))


@pytest.fixture(scope="module", name="server")
def _server() -> Iterator[ReplayServer]:
    with replaying(REPLAY, SPAN) as server:
        yield server


def wanted(token: str | None) -> list[bytes]:
    return answer(REPLAY, SPAN, token)


@pytest.mark.long
@pytest.mark.parametrize("options", [(), _NARROW], ids=["wide", "narrow"])
def test_a_sync_client_receives_every_message_unchanged(
    server: ReplayServer, options: tuple[tuple[str, int], ...]
) -> None:
    with grpc.insecure_channel(server.host, options=options) as channel:
        call = channel.unary_stream(STREAMING)(query(REPLAY, SPAN, REPLAY.tokens[0]), timeout=300)
        assert list(call) == wanted(REPLAY.tokens[0])


def test_the_initial_query_names_every_partition(server: ReplayServer) -> None:
    with grpc.insecure_channel(server.host) as channel:
        call = channel.unary_stream(STREAMING, response_deserializer=PartialResultSet.FromString)
        (message,) = call(query(REPLAY, SPAN, None), timeout=300)
    assert message.metadata.row_type.fields[0].name == "ChangeRecord"
    assert len(message.values) == len(REPLAY.tokens)


def test_a_session_belongs_to_the_requested_database(server: ReplayServer) -> None:
    with grpc.insecure_channel(server.host) as channel:
        call = channel.unary_unary(CREATE, response_deserializer=Session.FromString)
        session = call(create_session(), timeout=300)
    assert session.name.startswith("projects/p/instances/instance/databases/d/sessions/")
    assert session.multiplexed


@pytest.mark.parametrize("options", [(), _NARROW], ids=["wide", "narrow"])
def test_streams_of_one_connection_receive_their_own_messages(
    server: ReplayServer, options: tuple[tuple[str, int], ...]
) -> None:
    async def read(channel: grpc.aio.Channel, token: str) -> list[bytes]:
        return [message async for message in channel.unary_stream(STREAMING)(query(REPLAY, SPAN, token), timeout=300)]

    async def read_all() -> list[list[bytes]]:
        async with grpc.aio.insecure_channel(server.host, options=options) as channel:
            return await asyncio.gather(*(read(channel, token) for token in REPLAY.tokens))

    assert asyncio.run(read_all()) == [wanted(token) for token in REPLAY.tokens]


def test_a_cancelled_call_does_not_affect_others(server: ReplayServer) -> None:
    first, second, _ = REPLAY.tokens
    with grpc.insecure_channel(server.host) as channel:
        calls = channel.unary_stream(STREAMING)
        other = calls(query(REPLAY, SPAN, second), timeout=300)
        cancelled = calls(query(REPLAY, SPAN, first), timeout=300)
        next(cancelled)
        cancelled.cancel()
        assert list(other) == wanted(second)


def test_clients_may_disconnect_and_connect(server: ReplayServer) -> None:
    for _ in range(3):
        with grpc.insecure_channel(server.host, options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
            assert next(channel.unary_stream(STREAMING)(query(REPLAY, SPAN, REPLAY.tokens[1]), timeout=300))
