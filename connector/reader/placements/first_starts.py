"""Finds the first start of a placement's read function, where the wanted one is refused or returns no partitions.

A function is listed some time after its placement was created, or it is younger than the start of reading. So its
initial query may start before its creation, and Spanner refuses that start as too early. It refuses a start that it no
longer retains in the same way. The two differ in this: of what is retained, another function of the stream accepts the
same start. One refusal alone is not believed, because what is committed before the start that is found is never read.

A function may have no partitions: before the first key is in its placement, or after the last one has left it. It is
asked again until it has some, and what it returned before is not believed until it is confirmed.
"""

from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing

import grpc

from connector.core.records import INITIAL_TOKEN, partition_id
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import DataLostError, StreamError, StreamGoneError
from connector.log import Log
from connector.spanner.errors import CallAction, classify, query_error
from connector.spanner.partition_query import PartitionQuery, SendsQueries

_MOST_ASKED = 1000
"""Starts that are asked, at most, to find where a function without partitions has some."""

_log = Log(__name__)


async def halved(no: int, yes: int, answer: Callable[[int], Awaitable[bool]], *, step: int = 1) -> int:
    """The first timestamp with the answer yes, give or take a step, found by halving."""
    while yes - no > step:
        middle = (no + yes) // 2
        if await answer(middle):
            yes = middle
        else:
            no = middle
    return yes


class FirstStarts:
    """Finds the first starts of functions.

    Args:
        stream: the change stream's name.
        queries: sends queries.
        clock: requests Spanner's clock.
        functions: the names of all functions that are read.
    """

    def __init__(
        self,
        stream: str,
        queries: SendsQueries,
        clock: Callable[[], Awaitable[int]],
        functions: Callable[[], Collection[str]],
    ) -> None:
        self._stream = stream
        self._queries = queries
        self._clock = clock
        self._functions = functions

    async def accepted(self, function: str, start: int) -> int:
        """The first start, from ``start`` on, that a function accepts.

        Raises:
            DataLostError: its refusal, because no other function accepts that start either.
            StreamError: Spanner contradicts itself.
            grpc.RpcError: a query failed, perhaps for a while.
            SilentStreamError: a query returned no message in time.
        """
        try:
            await self.has_partitions(function, start)
        except DataLostError as error:
            refused = error
        else:
            return start
        others = [other for other in sorted(self._functions()) if other != function]
        retaining = [other for other in others if await self._retains(other, start)]
        if not retaining:
            raise refused
        first = await self._first_accepted(function, refused, start)
        before = first - 1
        if before > start and (await self._accepts(function, before) or not await self._accepts(retaining[0], before)):
            raise self._contradiction(function, before)
        _log.info(
            "a read function is younger than the start: it is read from its first start",
            change_stream=self._stream,
            function=function,
            start=format_rfc3339(start),
            reading_from=format_rfc3339(first),
        )
        return first

    async def with_partitions(self, function: str, start: int, upto: int) -> int | None:
        """The first start, from ``start`` on, at which a function has partitions; None if it has none up to ``upto``.

        It is asked each second, or a thousand times where there are more: partitions that begin and end between two of
        those times are not found, because only the times at which some exist return any.

        Raises:
            DataLostError: it refuses a start between them.
            StreamError: Spanner contradicts itself.
            grpc.RpcError: a query failed, perhaps for a while.
            SilentStreamError: a query returned no message in time.
        """
        if upto <= start:
            return start if await self.has_partitions(function, start) else None
        if await self.has_partitions(function, start):
            return start
        without, step = start, max(SECOND, (upto - start) // _MOST_ASKED)
        while not await self._confirmed(function, with_some := min(without + step, upto)):
            if with_some == upto:
                return None
            without = with_some
        first = await halved(without, with_some, lambda at: self.has_partitions(function, at))
        if first - 1 > without and await self.has_partitions(function, first - 1):
            raise self._contradiction(function, first - 1)
        return first

    async def _confirmed(self, function: str, at: int) -> bool:
        """True if the function has partitions; that it has none is believed when a second query confirms it."""
        return await self.has_partitions(function, at) or await self.has_partitions(function, at)

    async def _first_accepted(self, function: str, refused: DataLostError, start: int) -> int:
        """The first start by the refusal's message, if it names one, and else by halving."""
        now = await self._clock()
        named = refused.earliest
        if named is not None and start < named <= now and await self._accepts(function, named):
            if not await self._accepts(function, named - 1):
                return named
            now = named - 1
        elif not await self._accepts(function, now):
            raise refused
        return await halved(start, now, lambda at: self._accepts(function, at))

    async def _retains(self, other: str, start: int) -> bool:
        """True if another function accepts a start; one that was dropped since the last list accepts none."""
        try:
            return await self._accepts(other, start)
        except StreamGoneError:
            return False

    async def _accepts(self, function: str, start: int) -> bool:
        try:
            await self.has_partitions(function, start)
        except DataLostError:
            return False
        return True

    def _contradiction(self, function: str, at: int) -> StreamError:
        return StreamError(
            f"change stream {self._stream}: read function {function} gives two answers to a start at"
            f" {format_rfc3339(at)}",
            hint="Nothing was skipped. Start the reader again.",
        )

    async def has_partitions(self, function: str, start: int) -> bool:
        """True if the function returns partitions at a start.

        Raises:
            DataLostError: that start is too early.
            SpannerCdcError: the function cannot be read at all.
            grpc.RpcError: the query failed, perhaps for a while.
            SilentStreamError: the query returned no message in time.
        """
        query = PartitionQuery(partition_id(INITIAL_TOKEN, function), start, start)
        try:
            async with aclosing(self._queries.read(query)) as messages:
                return await anext(messages, None) is not None
        except grpc.RpcError as error:
            found = classify(error)
            if found.action is not CallAction.STOP:
                raise
            meaning = query_error(found, stream=self._stream, token=query.token, start=start)
            raise meaning from error.with_traceback(None)
