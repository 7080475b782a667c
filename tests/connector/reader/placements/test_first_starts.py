"""The first start of a young read function is found, and one wrong refusal is not believed."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

import grpc
import pytest

from connector.core.records import PartitionStartRecord, function_of
from connector.core.timestamps import format_rfc3339
from connector.errors import DataLostError, StreamError, StreamGoneError
from connector.reader.placements.first_starts import FirstStarts
from connector.spanner.decoding.decoder import Item
from connector.spanner.partition_query import PartitionQuery

NOW = 1_790_000_000 * 10**9
T = TypeVar("T")
Answer = Callable[[int], list[Item] | grpc.aio.AioRpcError]


def refused(message: str, code: grpc.StatusCode = grpc.StatusCode.OUT_OF_RANGE) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=message)


def one(at: int) -> list[Item]:
    return [PartitionStartRecord(at, ("a",))]


def from_then_on(first: int, message: str = "start_timestamp is too early") -> Answer:
    return lambda at: one(at) if at >= first else refused(message)


class Functions:
    """Answers initial queries, and notes them."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.asked: list[tuple[str, int]] = []
        self.wrong_at = 0
        """The number of the query that is refused if it is of F."""

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        function = function_of(query.token)
        assert function is not None
        self.asked.append((function, query.start))
        answer = self.answers[function](query.start)
        if self.wrong_at == len(self.asked) and function == "F":
            answer = refused("start_timestamp is too early")
        if isinstance(answer, grpc.aio.AioRpcError):
            raise answer
        if answer:
            yield answer

    def found(self, find: Callable[[FirstStarts], Coroutine[Any, Any, T]]) -> T:
        async def clock() -> int:
            return NOW

        return asyncio.run(find(FirstStarts("S", self, clock, lambda: self.answers)))


@pytest.mark.parametrize("first", [NOW - 5 * 10**9, NOW - 5 * 10**9 + 1, NOW])
@pytest.mark.parametrize("names_it", [False, True])
def test_the_first_start_is_found_to_the_nanosecond(first: int, *, names_it: bool) -> None:
    message = (
        f"start_timestamp is too early, earliest read timestamp: {format_rfc3339(first)}"
        if names_it
        else "start_timestamp"
    )
    functions = Functions(F=from_then_on(first, message), G=one)
    assert functions.found(lambda starts: starts.accepted("F", NOW - 10**10)) == first
    assert (len(functions.asked) < 12) is names_it


def test_a_wrong_name_of_the_earliest_start_is_not_believed() -> None:
    first, wrong = NOW - 5 * 10**9, NOW - 10**9
    functions = Functions(
        F=from_then_on(first, f"start_timestamp: earliest read timestamp: {format_rfc3339(wrong)}"), G=one
    )
    assert functions.found(lambda starts: starts.accepted("F", NOW - 10**10)) == first


def test_a_start_that_is_accepted_when_it_is_asked_again_is_the_first() -> None:
    functions = Functions(F=one, G=one)
    assert functions.found(lambda starts: starts.accepted("F", NOW - 10**10)) == NOW - 10**10


def test_one_wrong_refusal_on_the_way_skips_nothing() -> None:
    first, contradicted = NOW - 10**10 + 12_345, 0
    for number in range(1, 45):
        functions = Functions(F=from_then_on(first), G=one)
        functions.wrong_at = number
        try:
            found = functions.found(lambda starts: starts.accepted("F", NOW - 10**10))
        except (StreamError, DataLostError):
            contradicted += 1
            continue
        assert found == first
    assert contradicted > 10


def test_what_no_function_retains_is_lost_and_no_later_start_is_taken() -> None:
    too_old = refused("start_timestamp is too far in the past")
    functions = Functions(F=from_then_on(NOW - 10), G=lambda _: too_old)
    with pytest.raises(DataLostError, match=r"no longer retained|refuses the start"):
        functions.found(lambda starts: starts.accepted("F", NOW - 10**10))


def test_a_function_alone_is_not_believed_to_be_young() -> None:
    with pytest.raises(DataLostError):
        Functions(F=from_then_on(NOW - 10)).found(lambda starts: starts.accepted("F", NOW - 10**10))


def test_a_function_that_is_gone_is_an_error() -> None:
    gone = refused("Table-valued function not found: F", grpc.StatusCode.INVALID_ARGUMENT)
    with pytest.raises(StreamGoneError):
        Functions(F=lambda _: gone, G=one).found(lambda starts: starts.accepted("F", NOW - 10**10))


def test_another_function_that_is_gone_vouches_for_no_start_and_stops_nothing() -> None:
    gone = refused("Table-valued function not found: E", grpc.StatusCode.INVALID_ARGUMENT)
    functions = Functions(E=lambda _: gone, F=from_then_on(NOW - 10), G=one)
    assert functions.found(lambda starts: starts.accepted("F", NOW - 10**10)) == NOW - 10


def test_the_first_start_with_partitions_is_found_and_none_if_there_are_none() -> None:
    first = NOW - 5 * 10**9
    functions = Functions(F=lambda at: one(at) if at >= first else [], E=lambda _: [])
    assert functions.found(lambda starts: starts.with_partitions("F", NOW - 10**10, NOW)) == first
    assert functions.found(lambda starts: starts.with_partitions("F", NOW - 10**10, first - 1)) is None
    assert functions.found(lambda starts: starts.with_partitions("E", NOW - 10**10, NOW)) is None


def test_partitions_that_a_function_had_for_two_seconds_are_found_to_the_nanosecond() -> None:
    first, last = NOW - 5 * 10**9, NOW - 3 * 10**9
    functions = Functions(F=lambda at: one(at) if first <= at <= last else [])
    assert functions.found(lambda starts: starts.with_partitions("F", NOW - 10**10, NOW)) == first


def test_a_function_without_partitions_is_asked_a_limited_number_of_times() -> None:
    functions = Functions(F=lambda _: [])
    assert functions.found(lambda starts: starts.with_partitions("F", NOW - 7 * 86400 * 10**9, NOW)) is None
    assert len(functions.asked) <= 2003
