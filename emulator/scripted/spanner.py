"""A scripted Spanner without gRPC: it answers statements about a scenario's database, and reads its change stream.

A query of a partition returns what is committed there as the clock passes it: what lies behind at once, the rest as it
comes, heartbeats in between. It sleeps until its next record or heartbeat is due, so that thousands of idle queries
cost next to nothing. Each answer is a series of serialized google.spanner.v1.PartialResultSet.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter

import grpc

from emulator.scenario.history import (
    Change,
    Children,
    Event,
    Heartbeat,
    Partition,
    PartitionEnd,
    PartitionStart,
    Record,
)
from emulator.scenario.scenario import Scenario
from emulator.scripted.change_records import row_form
from emulator.scripted.clock import ScriptedClock
from emulator.scripted.fault_plan import Fault, FaultInQuery, FaultKind, FaultPlan
from emulator.scripted.framing import Frames, Framing
from emulator.scripted.information_schema import Answer, InformationSchema, RefusedStatementError, UnknownTableError
from emulator.scripted.row_types import metadata
from emulator.scripted.stream_query import (
    ScriptedError,
    StreamQuery,
    expired_partition,
    invalid,
    last_start,
    reads_change_stream,
    stream_query,
    too_old,
)

_BATCH = 64
_TIMESTAMP = attrgetter("timestamp")
_ANNOUNCEMENTS = (Children, PartitionStart, PartitionEnd)
_OF_THEIR_OWN = (FaultKind.SLOWNESS, FaultKind.LATENESS, FaultKind.BREAK_BETWEEN_CHILDREN, FaultKind.OMISSION)
"""These strike elsewhere than after so many messages."""
_ERRORS = {
    FaultKind.UNAVAILABLE: (grpc.StatusCode.UNAVAILABLE, "The service is currently unavailable."),
    FaultKind.ABORTED: (grpc.StatusCode.ABORTED, "Transaction was aborted."),
    FaultKind.RESOURCE_EXHAUSTED: (grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded for quota metric 'Reads'."),
    FaultKind.DEADLINE_EXCEEDED: (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
    FaultKind.INTERNAL: (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2"),
    FaultKind.CANCELLED: (grpc.StatusCode.CANCELLED, "The operation was cancelled."),
    FaultKind.BREAK_BETWEEN_CHILDREN: (grpc.StatusCode.UNAVAILABLE, "Stream removed"),
}


class SessionExpiredError(ScriptedError):
    """The query's session is unknown from now on."""

    def __init__(self, session: str) -> None:
        super().__init__(grpc.StatusCode.NOT_FOUND, f"Session not found: {session}")


class ResetError(ScriptedError):
    """The query's connection is to be reset."""

    def __init__(self) -> None:
        super().__init__(grpc.StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer")


class ScriptedSpanner:
    """A scenario's database as Spanner answers it; used in one event loop.

    It counts: `statements` about the database, `queries` of the change stream by partition token (None: the initial
    one), `refused` ones among them, `open` queries and the `most_open` at once, and `messages`.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        clock: ScriptedClock,
        faults: FaultPlan | None = None,
        framing: Framing | None = None,
    ) -> None:
        self.scenario = scenario
        self.clock = clock
        self.faults = faults or FaultPlan()
        self.framing = framing or Framing.plain()
        self.statements = 0
        self.queries: Counter[str | None] = Counter()
        self.refused = 0
        self.open = 0
        self.most_open = 0
        self.messages = 0
        self._schema = InformationSchema(scenario, clock.now)
        self._form = row_form(scenario.dialect, scenario.mode)
        self._metadata = metadata(scenario.dialect, scenario.mode, scenario.change_stream)

    def close(self) -> None:
        """Free what it holds; it answers no more."""
        self._schema.close()

    def drop_table(self, name: str) -> None:
        """Leave a table out of the database's schema from now on; nothing may be asked of it meanwhile."""
        self._schema.close()
        tables = tuple(table for table in self.scenario.tables if table.name != name)
        self._schema = InformationSchema(replace(self.scenario, tables=tables), self.clock.now)

    def describe(self, sql: str, parameters: Mapping[str, str | None]) -> Answer:
        """Answer a statement about the database.

        Raises:
            ScriptedError: it is refused.
        """
        self.statements += 1
        try:
            return self._schema.answer(sql, parameters)
        except UnknownTableError as error:
            if self.scenario.dialect == "googlesql":
                raise invalid(f"{error}: {sql}") from error
            raise ScriptedError(grpc.StatusCode.NOT_FOUND, str(error)) from error
        except RefusedStatementError as error:
            raise invalid(f"{error}: {sql}") from error

    async def execute(self, sql: str, parameters: Mapping[str, str | None]) -> AsyncGenerator[bytes]:
        """Give the messages of a statement's answer, a query's as the clock passes its records.

        `parameters` are values by name, NULL as None, all others in Spanner's text encoding.

        Raises:
            ScriptedError: what the call ends with, if not with OK.
        """
        if not reads_change_stream(sql):
            answer = self.describe(sql, parameters)
            columns = len(answer.rows[0]) if answer.rows else 1
            frames = self.framing.of_query(answer.metadata, sql, columns=columns)
            for message in frames.messages([value for row in answer.rows for value in row]):
                yield message
            for message in frames.end():
                yield message
            return
        async with aclosing(self._change_stream(sql, parameters)) as messages:
            async for message in messages:
                self.messages += 1
                yield message

    async def _change_stream(self, sql: str, parameters: Mapping[str, str | None]) -> AsyncGenerator[bytes]:
        try:
            query = stream_query(self.scenario, sql, parameters, self.clock.now())
        except ScriptedError:
            self.refused += 1
            raise
        number = self.queries[query.token]
        self.queries[query.token] += 1
        suffered = self.faults.next(query.token)
        frames = self.framing.of_query(self._metadata, f"{query.token}/{number}")
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            async with aclosing(self._answer(query, suffered, frames)) as messages:
                async for message in messages:
                    yield message
        finally:
            self.open -= 1
            suffered.over()

    async def _answer(self, query: StreamQuery, suffered: FaultInQuery, frames: Frames) -> AsyncGenerator[bytes]:
        """Give a query's messages, with what it is to suffer."""
        course = _Course(query, frames)
        await self._late(suffered)
        if await self._strikes(suffered, course):
            return
        async with aclosing(self._batches(query)) as batches:
            async for batch in batches:
                whole, breaks = _broken(_without_omissions(batch, query, suffered), suffered.fault)
                course.comes(whole)
                coming = _disordered(whole, query, suffered, self.faults)
                for message in frames.messages([self._form(record) for record in coming]):
                    await self._slow(suffered, course)
                    yield message
                    course.sent += 1
                    if await self._strikes(suffered, course):
                        return
                if breaks:
                    suffered.strike()
                    raise ScriptedError(*_ERRORS[FaultKind.BREAK_BETWEEN_CHILDREN])
        for message in frames.end():
            yield message

    async def _batches(self, query: StreamQuery) -> AsyncGenerator[Sequence[Record]]:
        """Give a query's records, those together that are there together."""
        history, clock = self.scenario.history, self.clock
        await clock.sleep_until(query.start)
        if query.token is None:
            yield history.initial(query.start)
            return
        partition = history.partitions[query.token]
        events, last = partition.events, last_start(self.scenario, partition)
        at = bisect_left(events, query.start, key=_TIMESTAMP)
        silent_since = clock.now()
        while True:
            now = clock.now()
            passed = now if query.end is None else min(now, query.end)
            upto = bisect_right(events, passed, lo=at, key=_TIMESTAMP)
            came = at < upto
            while at < upto:
                batch = _batch(events, at, upto)
                yield batch
                at += len(batch)
                await asyncio.sleep(0)  # a long backlog lets the others speak
            if passed == query.end or (last is not None and passed >= last):
                return
            if came:
                silent_since = clock.now()
            elif now >= silent_since + query.heartbeat:
                yield [Heartbeat(passed)]
                silent_since = clock.now()
            await clock.sleep_until(_due(query, partition, at, last, silent_since))

    async def _late(self, suffered: FaultInQuery) -> None:
        fault = suffered.fault
        if fault is not None and fault.kind is FaultKind.LATENESS:
            suffered.strike()
            await self.clock.sleep_until(self.clock.now() + fault.pause)

    async def _slow(self, suffered: FaultInQuery, course: _Course) -> None:
        fault = suffered.fault
        if fault is not None and fault.kind is FaultKind.SLOWNESS and course.sent >= fault.after:
            suffered.strike()
            await self.clock.sleep_until(self.clock.now() + fault.pause)

    async def _strikes(self, suffered: FaultInQuery, course: _Course) -> bool:
        """Tell whether the query ends here with OK.

        Raises:
            ScriptedError: it ends with that.
        """
        fault, query = suffered.fault, course.query
        if fault is None or course.sent < fault.after:
            return False
        if fault.kind in _OF_THEIR_OWN:
            return False
        if fault.kind is FaultKind.CLEAN_END:
            if course.may_end_cleanly:
                suffered.strike()
            return course.may_end_cleanly
        suffered.strike()
        match fault.kind:
            case FaultKind.SILENCE:
                await asyncio.Event().wait()
            case FaultKind.SESSION_EXPIRED:
                raise SessionExpiredError(fault.message)
            case FaultKind.CONNECTION_RESET:
                raise ResetError
            case FaultKind.EXPIRED_START:
                raise too_old(query.start, query.start + 1)
            case FaultKind.EXPIRED_PARTITION:
                raise expired_partition()
        code, message = _ERRORS[fault.kind]
        raise ScriptedError(code, fault.message or message)


class _Course:
    """How far a query's answer has come."""

    def __init__(self, query: StreamQuery, frames: Frames) -> None:
        self.query = query
        self.sent = 0
        self._frames = frames
        self._rows = 0
        self._announcement: int | None = None

    def comes(self, batch: Sequence[Record]) -> None:
        """Note rows that come next."""
        if self._announcement is None:
            found = (self._rows + index for index, record in enumerate(batch) if isinstance(record, _ANNOUNCEMENTS))
            self._announcement = next(found, None)
        self._rows += len(batch)

    @property
    def may_end_cleanly(self) -> bool:
        """Whether Spanner might end the query here with OK, with nothing proven by it.

        Not inside a row; not where the OK would prove the query's end; and not once partitions were announced, for
        then it says that the partition has finished.
        """
        announced = self._announcement is not None and self._frames.begun > self._announcement
        return not (announced or self._frames.open or self.query.proves_its_end)


def _batch(events: Sequence[Event], at: int, upto: int) -> Sequence[Event]:
    """Give the next events, announcements that belong together not taken apart."""
    end = min(at + _BATCH, upto)
    while end < upto and isinstance(events[end], _ANNOUNCEMENTS):
        end += 1
    return events[at:end]


_MISSED = (Change, Children, PartitionStart)
"""What a reader misses where it comes too late."""


def _disordered(
    batch: Sequence[Record], query: StreamQuery, suffered: FaultInQuery, faults: FaultPlan
) -> Sequence[Record]:
    """Give the batch with two neighbours exchanged, or a heartbeat before its time, where the plan wants it.

    Nothing is out of order in the initial query, which proves nothing before its end.
    """
    if query.token is None or suffered.fault is not None or not faults.breaks_order():
        return batch
    for index, (earlier, later) in enumerate(pairwise(batch)):
        if isinstance(earlier, _MISSED) and earlier.timestamp < later.timestamp:
            faults.disordered()
            return [*batch[:index], later, earlier, *batch[index + 2 :]]
    for index, record in enumerate(batch):
        if isinstance(record, _MISSED):
            faults.disordered()
            return [*batch[:index], Heartbeat(record.timestamp + 1), *batch[index:]]
    return batch


def _broken(batch: Sequence[Record], fault: Fault | None) -> tuple[Sequence[Record], bool]:
    """Give what comes of a batch, and whether the query breaks after it."""
    if fault is None or fault.kind is not FaultKind.BREAK_BETWEEN_CHILDREN:
        return batch, False
    announcements = [index for index, record in enumerate(batch) if isinstance(record, _ANNOUNCEMENTS)]
    if len(announcements) < 2:
        return batch, False
    return batch[: announcements[min(max(1, fault.after), len(announcements) - 1)]], True


def _without_omissions(batch: Sequence[Record], query: StreamQuery, suffered: FaultInQuery) -> Sequence[Record]:
    """Give what is not left out of a batch."""
    if suffered.fault is None or suffered.fault.kind is not FaultKind.OMISSION or not query.proves_its_end:
        return batch
    left = [record for record in batch if not isinstance(record, _ANNOUNCEMENTS)]
    if len(left) < len(batch):
        suffered.strike()
    return left


def _due(query: StreamQuery, partition: Partition, at: int, last: int | None, silent_since: int) -> int:
    """Give when a query has something to do next."""
    dues = [silent_since + query.heartbeat]
    if at < len(partition.events):
        dues.append(partition.events[at].timestamp)
    dues += [bound for bound in (query.end, last) if bound is not None]
    return min(dues)
