"""A list of read functions that cannot be read, or stays incomplete, is an alarm within a minute that names it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import pytest

from connector.core.health.retries import SPANNER, Retry, RetryLog
from connector.core.partitions import CutPartition, PartitionGraph
from connector.core.records import partition_id
from connector.core.timestamps import SECOND
from connector.errors import PlacementLostError, UnreachableError
from connector.reader.placements.listing import FunctionList, FunctionLister
from connector.reader.placements.watching import FunctionsWatch
from tests.property import virtual_time

SETTLED = FunctionList(20, {"default": "F"}, ("default",))
UNSETTLED = FunctionList(20, {"default": "F"}, ("default",), "there is no function of placement eu")


class Lister:
    """Answers each list in the same way, after some seconds."""

    def __init__(self, answer: FunctionList | UnreachableError, seconds: float) -> None:
        self.answer = answer
        self._seconds = seconds

    async def read(self) -> FunctionList:
        await asyncio.sleep(self._seconds)
        if isinstance(self.answer, UnreachableError):
            raise self.answer
        return self.answer

    async def as_of(self, timestamp: int) -> dict[str, str]:
        raise AssertionError(f"lists are a second apart, and none as of {timestamp} is read")


def watched(lister: Lister, *, then: Callable[[], None] = lambda: None) -> list[list[Retry]]:
    """The retries that have failed for long, after a minute of virtual time, and two seconds after ``then``."""
    clock, failing, out = virtual_clock(), RetryLog(), list[list[Retry]]()
    watch = FunctionsWatch(cast("FunctionLister", lister), SETTLED, SECOND)
    graph = PartitionGraph([CutPartition(partition_id("a", "F"), 10)], watermark=9)
    watch.begin(graph)

    async def run() -> None:
        task = asyncio.create_task(watch.watch(graph, lambda: None, failing))
        for seconds in (60, 30):
            await asyncio.sleep(seconds)
            out.append(failing.lasting(clock()))
            then()
        task.cancel()
        await asyncio.wait({task})

    virtual_time.run(run())
    return out


def virtual_clock() -> Callable[[], int]:
    return lambda: int(asyncio.get_running_loop().time() * SECOND)


@pytest.mark.parametrize(
    ("answer", "seconds", "why"),
    [
        (UnreachableError("Spanner did not answer", hint="wait"), 20, "cannot be listed (Spanner did not answer"),
        (UNSETTLED, 0, "is incomplete (there is no function of placement eu"),
    ],
)
def test_a_list_that_fails_is_an_alarm_within_a_minute_and_ends_with_the_next_list(
    answer: FunctionList | UnreachableError, seconds: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector.reader.placements.watching.time.time_ns", virtual_clock())
    lister = Lister(answer, seconds)

    def heal() -> None:
        lister.answer = SETTLED

    failing, healed = watched(lister, then=heal)
    assert [retry.what for retry in failing] == [SPANNER]
    assert why in str(failing[0].cause)
    assert healed == []


class Gap(Lister):
    """The list of a minute later, with G in between."""

    def __init__(self, newest: FunctionList, function: str) -> None:
        super().__init__(newest, 0)
        self._function = function

    async def as_of(self, timestamp: int) -> dict[str, str]:
        return {"F": "default"} | ({self._function: "eu"} if 10 * SECOND < timestamp < 40 * SECOND else {})


def after_a_gap(function: str, *, is_known: bool) -> None:
    newest = FunctionList(60 * SECOND, {"default": "F"}, ("default",))
    watch = FunctionsWatch(cast("FunctionLister", Gap(newest, function)), SETTLED, SECOND)
    cut = [CutPartition(partition_id("a", "F"), 10)]
    graph = PartitionGraph(cut, watermark=9)
    if is_known:
        graph.functions.has_ended(partition_id("", function))
    watch.begin(graph)

    async def run() -> None:
        await asyncio.wait_for(watch.watch(graph, lambda: None, RetryLog()), 3)

    with suppress(TimeoutError):
        virtual_time.run(run())


def test_a_function_that_came_and_went_between_two_lists_ends_reading() -> None:
    with pytest.raises(PlacementLostError, match="its read function G was listed as of"):
        after_a_gap("G", is_known=False)


def test_a_function_without_partitions_that_went_between_two_lists_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    after_a_gap("G", is_known=True)
    assert "a placement was dropped while nothing was read" in caplog.text
