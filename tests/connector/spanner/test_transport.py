"""Streams in both ways of reading them: awaited by asyncio, and pumped by a thread."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from connector.spanner.errors import CallAction, classify
from connector.spanner.pump import ENOUGH, MESSAGE
from connector.spanner.pump import MOST_OF_A_PUMP as MOST
from connector.spanner.transport import PUMPS, STREAMS_PER_CHANNEL, Take, Transport
from tests.connector.spanner.streams import METHOD, Served, never, pump_threads, serving, write_all
from tests.faults.link import linked

PATIENCE = 600.0
HEADERS = (("google-cloud-resource-prefix", "a database"),)


@pytest.fixture(params=[False, True], ids=["awaited", "pumped"])
def behind(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def run(main: Coroutine[object, object, None]) -> None:
    async def patiently() -> None:
        async with asyncio.timeout(PATIENCE):
            await main

    asyncio.run(patiently())
    assert not pump_threads()


@asynccontextmanager
async def connected(served: Served) -> AsyncIterator[Transport]:
    transport = Transport(served.host, None, user_agent="tests/1")
    try:
        yield transport
    finally:
        await transport.close()


def streaming(transport: Transport, behind: bool) -> AbstractAsyncContextManager[Take]:
    return transport.streaming(METHOD, b"request", HEADERS, behind=behind)


async def all_of(take: Take) -> list[bytes]:
    found: list[bytes] = []
    while messages := await take():
        found += messages
    return found


@pytest.mark.long(but=1)
def test_all_messages_come_in_order_of_whatever_size(behind: bool) -> None:
    sent = [b"", b"a" * ENOUGH, b"b", b"c" * (5 * MOST), b"", *(b"%d" % number for number in range(5_000)), b"d" * MOST]

    async def answer(context: grpc.aio.ServicerContext) -> None:
        await write_all(context, *sent)

    async def main() -> None:
        async with serving(answer) as served, connected(served) as transport, streaming(transport, behind) as take:
            assert await all_of(take) == sent
            assert await take() == []

    run(main())


def test_a_message_that_arrives_alone_is_returned_at_once(behind: bool) -> None:
    taken = asyncio.Queue[None]()

    async def answer(context: grpc.aio.ServicerContext) -> None:
        for number in range(20):
            await context.write(b"%d" % number)
            await taken.get()

    async def main() -> None:
        async with serving(answer) as served, connected(served) as transport, streaming(transport, behind) as take:
            for number in range(20):
                assert await take() == [b"%d" % number]
                taken.put_nowait(None)
            assert await take() == []

    run(main())


def test_an_error_is_raised_after_the_messages_before_it(behind: bool) -> None:
    async def answer(context: grpc.aio.ServicerContext) -> None:
        await write_all(context, b"1", b"2", b"3")
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone for a while", (("why", "a test"),))

    async def main() -> None:
        async with serving(answer) as served, connected(served) as transport, streaming(transport, behind) as take:
            found: list[bytes] = []
            while len(found) < 3:
                found += await take()
            with pytest.raises(grpc.RpcError) as told:
                await take()
            assert found == [b"1", b"2", b"3"]
            assert (classify(told.value).action, classify(told.value).message) == (CallAction.RETRY, "gone for a while")
            assert ("why", "a test") in [tuple(pair) for pair in told.value.trailing_metadata()]

    run(main())


def test_a_server_that_cannot_be_reached_is_an_error_that_is_retried(behind: bool) -> None:
    async def main() -> None:
        async with serving(never) as served:
            pass
        async with connected(served) as transport, streaming(transport, behind) as take:
            with pytest.raises(grpc.RpcError) as told:
                await take()
            assert classify(told.value).action is CallAction.RETRY

    run(main())


def test_a_connection_that_died_silently_ends_and_one_whose_server_is_slow_does_not(
    behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pinging(patience: int) -> None:
        options = (("grpc.keepalive_time_ms", 500), ("grpc.http2.ping_timeout_ms", patience))
        monkeypatch.setattr("connector.spanner.transport._OPTIONS", options)

    begun = asyncio.Event()

    async def late_by(seconds: float) -> list[bytes]:
        async def slowly(context: grpc.aio.ServicerContext) -> None:
            await asyncio.sleep(seconds)
            await context.write(b"late")

        async with serving(slowly) as served, connected(served) as transport, streaming(transport, behind) as take:
            return await all_of(take)

    async def silently(context: grpc.aio.ServicerContext) -> None:
        begun.set()
        await never(context)

    async def main() -> None:
        pinging(500)
        try:
            received = await late_by(3)
        except grpc.RpcError:  # a busy machine answers a ping late: again with more time for each
            pinging(15_000)
            received = await late_by(20)
            pinging(500)
        assert received == [b"late"]
        async with serving(silently) as served:
            with linked(served.host) as link:
                async with connected(Served(link.host)) as transport, streaming(transport, behind) as take:
                    await begun.wait()
                    link.fall_silent()
                    with pytest.raises(grpc.RpcError) as told:
                        await take()
                    link.speak()
        assert classify(told.value).action is CallAction.RETRY

    run(main())


@pytest.mark.parametrize("messages", [0, 3])
def test_leaving_the_stream_ends_the_call(behind: bool, messages: int) -> None:
    async def answer(context: grpc.aio.ServicerContext) -> None:
        await write_all(context, *[b"message"] * messages)
        await never(context)

    async def main() -> None:
        async with serving(answer) as served, connected(served) as transport:
            async with streaming(transport, behind) as take:
                if messages:
                    await take()
                await served.until(1)
            await served.until(0)

    run(main())


def test_a_reader_that_is_cancelled_ends_the_call(behind: bool) -> None:
    async def read(transport: Transport) -> None:
        async with streaming(transport, behind) as take:
            await take()

    async def main() -> None:
        async with serving(never) as served, connected(served) as transport:
            reading = asyncio.create_task(read(transport))
            await served.until(1)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await served.until(0)

    run(main())


def test_closing_ends_calls_that_were_not_ended(behind: bool) -> None:
    async def endless(context: grpc.aio.ServicerContext) -> None:
        while True:
            await context.write(b"x" * 1000)

    async def main() -> None:
        async with serving(endless) as served:
            transport = Transport(served.host, None, user_agent="tests/1")
            open_streams = [streaming(transport, behind) for _ in range(3)]
            takes = [await stream.__aenter__() for stream in open_streams]
            for take in takes:
                assert await take()
            await transport.close()
            await served.until(0)

    run(main())


def test_a_reader_that_does_not_take_stops_the_server_and_then_continues(behind: bool) -> None:
    message = b"x" * 10_000
    bounded = 4 * MOST
    written = 0

    async def endless(context: grpc.aio.ServicerContext) -> None:
        nonlocal written
        while True:
            await context.write(message)
            written += len(message)

    async def main() -> None:
        async with serving(endless) as served, connected(served) as transport, streaming(transport, behind) as take:
            taken = 0
            for _ in range(3):
                before = written
                while written < before + bounded:
                    taken += sum(map(len, await take()))
                last = -1
                while last != written:  # until it stands still
                    last = written
                    await asyncio.sleep(0.2)
                    assert written < taken + bounded
            # and leaving it ends it, though the thread waits for room

    run(main())


def test_streams_that_are_not_read_do_not_delay_their_neighbour() -> None:
    left = STREAMS_PER_CHANNEL

    async def answer(context: grpc.aio.ServicerContext) -> None:
        for _ in range(400):
            await context.write(b"x" * 10_000)

    async def main() -> None:
        async with serving(answer) as served, connected(served) as transport:
            held = [streaming(transport, behind=False) for _ in range(left - 1)]
            for stream in held:
                assert await (await stream.__aenter__())()
            async with streaming(transport, behind=False) as take:
                assert len(await all_of(take)) == 400
            assert len(served.peers) == 1
            for stream in held:
                await stream.__aexit__(None, None, None)

    run(main())


@pytest.mark.long
def test_more_than_there_may_be_pumps_are_all_read() -> None:
    begun = asyncio.Event()

    async def answer(context: grpc.aio.ServicerContext) -> None:
        await begun.wait()
        await write_all(context, *(b"%d" % number for number in range(100)))

    async def read(transport: Transport) -> int:
        async with streaming(transport, behind=True) as take:
            return len(await all_of(take))

    async def main() -> None:
        async with serving(answer) as served, connected(served) as transport, asyncio.TaskGroup() as tasks:
            for _ in range(2):
                begun.clear()
                readings = [tasks.create_task(read(transport)) for _ in range(PUMPS + STREAMS_PER_CHANNEL + 5)]
                await served.until(len(readings))
                assert len(pump_threads()) == PUMPS
                assert len(served.peers) == PUMPS + 2
                begun.set()
                assert [await reading for reading in readings] == [100] * len(readings)

    run(main())


def test_a_call_that_is_not_behind_takes_no_thread() -> None:
    async def answer(context: grpc.aio.ServicerContext) -> None:
        await context.write(b"message")

    async def main() -> None:
        async with serving(answer) as served, connected(served) as transport:
            async with streaming(transport, behind=False) as take:
                assert await all_of(take) == [b"message"]
            assert not pump_threads()

    run(main())


def test_the_headers_and_the_user_agent_are_sent(behind: bool) -> None:
    async def answer(context: grpc.aio.ServicerContext) -> None:
        await context.write(b"message")

    async def main() -> None:
        async with serving(answer) as served, connected(served) as transport:
            async with streaming(transport, behind) as take:
                assert await all_of(take)
            assert dict(HEADERS).items() <= served.headers[0].items()
            assert served.headers[0]["user-agent"].startswith("tests/1 ")

    run(main())


def test_the_credentials_go_with_every_call(behind: bool, tmp_path: Path) -> None:
    secure = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
    credentials = grpc.composite_channel_credentials(secure, grpc.access_token_call_credentials("a token"))

    async def answer(context: grpc.aio.ServicerContext) -> None:
        await context.write(b"message")

    async def main() -> None:
        async with serving(answer, safely_at=tmp_path / "socket") as served:
            transport = Transport(served.host, credentials, user_agent="tests/1")
            async with streaming(transport, behind) as take:
                assert await all_of(take)
            assert served.headers[0]["authorization"] == "Bearer a token"
            await transport.close()

    run(main())


@pytest.mark.long
def test_frequent_messages_are_taken_together() -> None:
    async def answer(context: grpc.aio.ServicerContext) -> None:
        await write_all(context, *[b"x" * 100] * 20_000)

    async def main() -> None:
        async with serving(answer) as served, connected(served) as transport, streaming(transport, behind=True) as take:
            sizes: list[int] = []
            while messages := await take():
                sizes.append(len(messages))
                assert sum(map(len, messages)) + MESSAGE * len(messages) < MOST + 100 + MESSAGE
            assert sum(sizes) == 20_000
            assert len(sizes) < 2_000

    run(main())


def test_the_loop_continues_while_a_call_ends() -> None:
    async def main() -> None:
        async with serving(never) as served, connected(served) as transport:
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            counting = asyncio.create_task(count())
            for _ in range(10):
                async with streaming(transport, behind=True):
                    await served.until(1)
                    before = turns
                assert turns > before
                await served.until(0)
            counting.cancel()

    run(main())
