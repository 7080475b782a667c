"""The partitions that may read on, and those that wait."""

import asyncio

from connector.reader.flow_control import MESSAGE, FlowControl

BUDGET = 10 * MESSAGE


async def waiters(flow: FlowControl, progress: list[int]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(flow.wait(f"p{at}", at)) for at in progress]
    await asyncio.sleep(0)
    return tasks


async def awake(tasks: list[asyncio.Task[None]]) -> list[bool]:
    await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def test_the_laggard_is_admitted_above_the_budget_until_what_is_ready_fills_it() -> None:
    flow = FlowControl(BUDGET)
    assert flow.admits(held=BUDGET - 1, ready=0, laggard=False)
    assert not flow.admits(held=BUDGET, ready=0, laggard=False)
    assert flow.admits(held=BUDGET, ready=BUDGET - 1, laggard=True)
    assert not flow.admits(held=BUDGET, ready=BUDGET, laggard=True)


def test_above_the_budget_only_partitions_that_hold_the_watermark_are_woken() -> None:
    async def main() -> None:
        flow = FlowControl(BUDGET)
        tasks = await waiters(flow, [7, 5, 9, 5])
        flow.update(held=BUDGET, ready=0, watermark=5)
        assert await awake(tasks) == [False, True, False, True]
        assert flow.waiting == 2
        await end(tasks)

    asyncio.run(main())


def test_no_partition_is_woken_while_ready_records_fill_the_budget() -> None:
    async def main() -> None:
        flow = FlowControl(BUDGET)
        tasks = await waiters(flow, [5, 6])
        flow.update(held=2 * BUDGET, ready=BUDGET, watermark=9)
        assert await awake(tasks) == [False, False]
        await end(tasks)

    asyncio.run(main())


def test_below_the_budget_no_more_are_woken_than_fit_and_those_behind_first() -> None:
    async def main() -> None:
        flow = FlowControl(BUDGET)
        tasks = await waiters(flow, list(range(40, 0, -1)))
        for _ in range(3):  # nothing has arrived of those that were woken, so that there is no more room
            flow.update(held=BUDGET - 3 * MESSAGE, ready=0, watermark=0)
            assert [at for at, done in zip(range(40, 0, -1), await awake(tasks), strict=True) if done] == [4, 3, 2, 1]
        flow.arrived("p2")
        flow.update(held=BUDGET - 3 * MESSAGE, ready=0, watermark=0)
        assert sum(await awake(tasks)) == 5
        await end(tasks)

    asyncio.run(main())


def test_a_cancelled_partition_takes_no_room() -> None:
    async def main() -> None:
        flow = FlowControl(BUDGET)
        tasks = await waiters(flow, [1, 2])
        tasks[0].cancel()
        await asyncio.wait({tasks[0]})
        flow.update(held=BUDGET - 1, ready=0, watermark=0)
        assert (await awake(tasks))[1]
        assert flow.waiting == 0

    asyncio.run(main())
