"""A scripted Spanner without gRPC: answers statements about a scenario's database and change stream queries.

A partition's query returns the records that are committed before the clock's time at once, later ones as the clock
reaches them, and heartbeats in between. It sleeps until its next record or heartbeat is due, so that thousands of idle
queries cost almost nothing. Each answer is a series of serialized google.spanner.v1.PartialResultSet.
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

from connector.core.timestamps import format_rfc3339
from emulator.scenario.history import (
    Change,
    Children,
    Event,
    Heartbeat,
    History,
    Partition,
    PartitionEnd,
    PartitionStart,
    Record,
)
from emulator.scenario.scenario import Scenario
from emulator.scripted.change_records import row_encoder
from emulator.scripted.clock import ScriptedClock
from emulator.scripted.fault_plan import Fault, FaultInQuery, FaultKind, FaultPlan
from emulator.scripted.framing import Frames, Framing
from emulator.scripted.information_schema import Answer, InformationSchema
from emulator.scripted.row_types import metadata
from emulator.scripted.stream_query import (
    ScriptedError,
    StreamQuery,
    expired_partition,
    last_start,
    reads_change_stream,
    stream_query,
    too_old,
)

_BATCH = 64
_TIMESTAMP = attrgetter("timestamp")
_ANNOUNCEMENTS = (Children, PartitionStart, PartitionEnd)
_NOT_AFTER_MESSAGES = (FaultKind.SLOWNESS, FaultKind.LATENESS, FaultKind.BREAK_BETWEEN_CHILDREN, FaultKind.OMISSION)
"""Faults that are not injected after a number of messages, but in other places."""
_ERRORS = {
    FaultKind.UNAVAILABLE: (grpc.StatusCode.UNAVAILABLE, "The service is currently unavailable."),
    FaultKind.ABORTED: (grpc.StatusCode.ABORTED, "Transaction was aborted."),
    FaultKind.RESOURCE_EXHAUSTED: (grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded for quota metric 'Reads'."),
    FaultKind.DEADLINE_EXCEEDED: (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
    FaultKind.INTERNAL: (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2"),
    FaultKind.CANCELLED: (grpc.StatusCode.CANCELLED, "The operation was cancelled."),
    FaultKind.BREAK_BETWEEN_CHILDREN: (grpc.StatusCode.UNAVAILABLE, "Stream removed"),
}
ENDING = (*_ERRORS, FaultKind.SESSION_EXPIRED, FaultKind.CONNECTION_RESET)
"""Faults that end any query with an error."""


class SessionExpiredError(ScriptedError):
    """The query's session does not exist any more."""

    def __init__(self, session: str) -> None:
        super().__init__(grpc.StatusCode.NOT_FOUND, f"Session not found: {session}")


class ResetError(ScriptedError):
    """The query's connection is to be reset."""

    def __init__(self) -> None:
        super().__init__(grpc.StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer")


def error_of(fault: Fault, session: str) -> ScriptedError:
    """Returns the error with which a fault of one of the kinds `ENDING` ends a query."""
    if fault.kind is FaultKind.SESSION_EXPIRED:
        return SessionExpiredError(session)
    if fault.kind is FaultKind.CONNECTION_RESET:
        return ResetError()
    code, message = _ERRORS[fault.kind]
    return ScriptedError(code, fault.message or message)


class ScriptedSpanner:
    """Answers for a scenario's database as Spanner does; used in one event loop.

    It counts `statements` about the database, change stream `queries` by partition token (None: the initial one),
    `refused` queries, `open` queries, `most_open` queries at once, and `messages`.
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
        self._encode = row_encoder(scenario.dialect, scenario.mode)

    def close(self) -> None:
        """Releases all resources; nothing can be answered after that."""
        self._schema.close()

    def drop_table(self, name: str) -> None:
        """Omit a table from the database's schema from now on; no statement may run at the same time."""
        self._schema.close()
        tables = tuple(table for table in self.scenario.tables if table.name != name)
        self._schema = InformationSchema(replace(self.scenario, tables=tables), self.clock.now)

    def drop_placement(self, name: str) -> None:
        """Drops a placement and its function now, as far as lists and new queries are concerned; in any thread.

        Raises:
            ValueError: keys are in it.
        """
        now, placements = self.clock.now(), self.scenario.placements
        assert placements is not None
        emptied = placements.named(name).emptied
        if emptied is None or emptied > now:
            raise ValueError(f"placement {name} cannot be dropped, because keys are in it")
        self.scenario = replace(self.scenario, placements=placements.without(name, now))
        self._schema.scenario = replace(self._schema.scenario, placements=self.scenario.placements)

    def describe(self, sql: str, parameters: Mapping[str, str | None], at: int | None = None) -> Answer:
        """Answers a statement about the database, as of now or of a timestamp in the past.

        Raises:
            ScriptedError: Spanner would reject it.
        """
        self.statements += 1
        if at is not None:
            self.check_kept(at)
        return self._schema.answer(sql, parameters, at)

    def check_kept(self, timestamp: int) -> None:
        """Checks that the versions of a timestamp are kept.

        Raises:
            ScriptedError: they are older than the database's version retention period.
        """
        if timestamp < self.clock.now() - self.scenario.version_retention:
            raise ScriptedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"Read-only transaction timestamp {format_rfc3339(timestamp)}"
                " has exceeded the maximum timestamp staleness",
            )

    async def execute(
        self, sql: str, parameters: Mapping[str, str | None], at: int | None = None
    ) -> AsyncGenerator[bytes]:
        """Yields the messages of a statement's answer; those of a change stream query as the clock reaches its records.

        `parameters` are values by name: None for NULL, others in Spanner's text encoding. `at` is the timestamp of a
        read of the database's schema in the past.

        Raises:
            ScriptedError: the call ends with this error.
        """
        if not reads_change_stream(sql):
            answer = self.describe(sql, parameters, at)
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
        query_fault = self.faults.next(query.token)
        described = metadata(self.scenario.dialect, self.scenario.mode, query.function.name)
        frames = self.framing.of_query(described, f"{query.token}/{number}")
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            async with aclosing(self._answer(query, query_fault, frames)) as messages:
                async for message in messages:
                    yield message
        finally:
            self.open -= 1
            query_fault.over()

    async def _answer(self, query: StreamQuery, query_fault: FaultInQuery, frames: Frames) -> AsyncGenerator[bytes]:
        """Yields a query's messages, with its fault."""
        progress = _Served(query, frames)
        await self._pause(query_fault, FaultKind.LATENESS)
        if await self._inject(query_fault, progress):
            return
        async with aclosing(self._batches(query)) as batches:
            async for batch in batches:
                whole, breaks = _broken(_without_omissions(batch, query, query_fault), query_fault.fault)
                progress.add(whole)
                rows = _disordered(whole, query, query_fault, self.faults)
                for message in frames.messages([self._encode(record) for record in rows]):
                    await self._pause(query_fault, FaultKind.SLOWNESS, progress.sent)
                    yield message
                    progress.sent += 1
                    if await self._inject(query_fault, progress):
                        return
                if breaks:
                    query_fault.strike()
                    raise ScriptedError(*_ERRORS[FaultKind.BREAK_BETWEEN_CHILDREN])
        for message in frames.end():
            yield message

    async def _batches(self, query: StreamQuery) -> AsyncGenerator[Sequence[Record]]:
        """Yields a query's records, in batches of those that are due at the same time."""
        history, clock = self.scenario.history, self.clock
        await clock.sleep_until(query.start)
        if query.token is None:
            yield _initial(history, query)
            return
        partition = history.partitions[query.token]
        events, last = partition.events, last_start(self.scenario, partition)
        at = bisect_left(events, query.start, key=_TIMESTAMP)
        silent_since = clock.now()
        while True:
            now = clock.now()
            passed = now if query.end is None else min(now, query.end)
            upto = bisect_right(events, passed, lo=at, key=_TIMESTAMP)
            has_records = at < upto
            while at < upto:
                batch = _batch(events, at, upto)
                yield batch
                at += len(batch)
                await asyncio.sleep(0)  # lets other queries run during a long backlog
            if passed == query.end or (last is not None and passed >= last):
                return
            if has_records:
                silent_since = clock.now()
            elif now >= silent_since + query.heartbeat:
                yield [Heartbeat(passed)]
                silent_since = clock.now()
            await clock.sleep_until(_due(query, partition, at, last, silent_since))

    async def _pause(self, query_fault: FaultInQuery, kind: FaultKind, sent: int | None = None) -> None:
        """Pauses if the query's fault is of that kind, and due after the messages that were sent, where they count."""
        fault = query_fault.fault
        if fault is not None and fault.kind is kind and (sent is None or sent >= fault.after):
            query_fault.strike()
            await self.clock.sleep_until(self.clock.now() + fault.pause)

    async def _inject(self, query_fault: FaultInQuery, progress: _Served) -> bool:
        """Injects the query's fault if it is due; returns whether the query ends here with OK.

        Raises:
            ScriptedError: the query ends with this error.
        """
        fault, query = query_fault.fault, progress.query
        if fault is None or progress.sent < fault.after:
            return False
        if fault.kind in _NOT_AFTER_MESSAGES:
            return False
        if fault.kind is FaultKind.CLEAN_END:
            if progress.may_end_cleanly:
                query_fault.strike()
            return progress.may_end_cleanly
        query_fault.strike()
        match fault.kind:
            case FaultKind.SILENCE:
                await asyncio.Event().wait()
            case FaultKind.EXPIRED_START:
                raise too_old(query.start, query.start + 1)
            case FaultKind.EXPIRED_PARTITION:
                raise expired_partition()
        raise error_of(fault, fault.message)


class _Served:
    """The progress of a query's answer."""

    def __init__(self, query: StreamQuery, frames: Frames) -> None:
        self.query = query
        self.sent = 0
        self._frames = frames
        self._rows = 0
        self._announcement: int | None = None

    def add(self, batch: Sequence[Record]) -> None:
        """Adds the rows that are sent next."""
        if self._announcement is None:
            found = (self._rows + index for index, record in enumerate(batch) if isinstance(record, _ANNOUNCEMENTS))
            self._announcement = next(found, None)
        self._rows += len(batch)

    @property
    def may_end_cleanly(self) -> bool:
        """True if Spanner might end the query here with OK without proving anything.

        Not inside a row, and not if the OK would prove that everything up to the query's end was sent. Nor once
        partitions were announced, because then the OK says that the partition has finished.
        """
        announced = self._announcement is not None and self._frames.started > self._announcement
        return not (announced or self._frames.open or self.query.proves_its_end)


def _initial(history: History, query: StreamQuery) -> list[Event]:
    """Returns the initial partitions of a query's function, which has none before its placement was created."""
    placement = query.function.placement
    if placement is None:
        return history.initial(query.start)
    return history.initial(max(query.start, placement.created), placement.name)


def _batch(events: Sequence[Event], at: int, upto: int) -> Sequence[Event]:
    """Returns the next events; consecutive announcements are not separated."""
    end = min(at + _BATCH, upto)
    while end < upto and isinstance(events[end], _ANNOUNCEMENTS):
        end += 1
    return events[at:end]


_MISSED = (Change, Children, PartitionStart)
"""Records that a reader loses if they are sent too late."""


def _disordered(
    batch: Sequence[Record], query: StreamQuery, query_fault: FaultInQuery, faults: FaultPlan
) -> Sequence[Record]:
    """Returns the batch with two adjacent records exchanged, or with a premature heartbeat, if the plan says so.

    The initial query is not affected, because its records prove nothing before it ends.
    """
    if query.token is None or query_fault.fault is not None or not faults.breaks_order():
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
    """Returns the part of a batch that is sent, and whether the query breaks after it."""
    if fault is None or fault.kind is not FaultKind.BREAK_BETWEEN_CHILDREN:
        return batch, False
    announcements = [index for index, record in enumerate(batch) if isinstance(record, _ANNOUNCEMENTS)]
    if len(announcements) < 2:
        return batch, False
    return batch[: announcements[min(max(1, fault.after), len(announcements) - 1)]], True


def _without_omissions(batch: Sequence[Record], query: StreamQuery, query_fault: FaultInQuery) -> Sequence[Record]:
    """Returns a batch without its announcements if the query's fault omits them."""
    if query_fault.fault is None or query_fault.fault.kind is not FaultKind.OMISSION or not query.proves_its_end:
        return batch
    left = [record for record in batch if not isinstance(record, _ANNOUNCEMENTS)]
    if len(left) < len(batch):
        query_fault.strike()
    return left


def _due(query: StreamQuery, partition: Partition, at: int, last: int | None, silent_since: int) -> int:
    """Returns the timestamp at which a query has to act next."""
    dues = [silent_since + query.heartbeat]
    if at < len(partition.events):
        dues.append(partition.events[at].timestamp)
    dues += [bound for bound in (query.end, last) if bound is not None]
    return min(dues)
