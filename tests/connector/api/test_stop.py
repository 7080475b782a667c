"""A stop wakes whoever waits, from any thread, and only once it is requested."""

import asyncio
import threading

from connector import Stop
from connector.api.stop import reader_stop


def test_a_request_from_a_thread_wakes_every_waiter() -> None:
    async def main() -> None:
        stop = Stop()
        waiting = [asyncio.create_task(stop.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not stop.requested
        threading.Thread(target=stop.request).start()
        await asyncio.wait_for(asyncio.gather(*waiting), 10)
        await asyncio.wait_for(stop.wait(), 10)
        assert stop.requested

    asyncio.run(main())


def test_a_request_after_the_loop_is_closed_does_nothing() -> None:
    stop = Stop()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(stop.wait())
    loop.run_until_complete(asyncio.sleep(0))
    waiting.cancel()
    loop.run_until_complete(asyncio.wait({waiting}))
    loop.close()
    stop.request()
    assert stop.requested


def test_the_readers_stop_follows_the_callers() -> None:
    async def main() -> None:
        stop = Stop()
        async with reader_stop(stop, 10**9) as follower:
            stop.request()
            await asyncio.wait_for(follower.wait(), 10)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
