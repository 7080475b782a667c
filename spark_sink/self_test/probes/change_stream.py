"""Probes of Spanner's change streams, by queries as the reader sends them."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise

import grpc

from connector.config import SourceConfig
from connector.core.dialects import IMMUTABLE, MUTABLE, Dialect
from connector.core.records import (
    INITIAL_TOKEN,
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionStartRecord,
    Record,
    timestamp_of,
)
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import SpannerCdcError
from connector.spanner.client import SpannerClient
from connector.spanner.decoding.decoder import Decoder, walk
from connector.spanner.decoding.row_fields import UnknownRecordError
from connector.spanner.errors import classify
from connector.spanner.partition_query import PartitionQueries, PartitionQuery, SilentStreamError
from spark_sink.self_test.report import Observation, SelfTestVerdict

HEARTBEAT = 2 * SECOND
"""Of the query whose heartbeats are watched."""

WATCHED = 7.0
"""Seconds for which heartbeats are watched."""

PINGED_AFTER = 180.0
"""Seconds without data after which the reader's connection is pinged."""

_LONGEST_HEARTBEAT = 300 * SECOND
_WINDOW = 30 * SECOND
_BOUNDED = 120.0
_HELD = 24 * 3600.0
_CANCELLED = 10.0
_MOST_PARTITIONS = 10_000


@dataclass(slots=True)
class ProbeAnswer:
    """The records that a query has returned.

    Attributes:
        records: each with the seconds since the query was sent.
        ended: how it ended: ``OK``, an error's code and message, or that it was still open.
    """

    records: list[tuple[float, Record]] = field(default_factory=list)
    ended: str = "still open"

    @property
    def kinds(self) -> str:
        """The number of records of each kind."""
        counts = Counter(type(record).__name__.removesuffix("Record") for _, record in self.records)
        return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "no records"

    @property
    def children(self) -> list[tuple[str, int]]:
        """The partitions that it announces, each with its start in nanoseconds since 1970."""
        found: list[tuple[str, int]] = []
        for _, record in self.records:
            if isinstance(record, ChildPartitionsRecord):
                found += [(child.token, record.start_timestamp) for child in record.children]
            elif isinstance(record, PartitionStartRecord):
                found += [(token, record.start_timestamp) for token in record.tokens]
        return found

    @property
    def data(self) -> list[DataChangeRecord]:
        """The data change records."""
        return [record for _, record in self.records if isinstance(record, DataChangeRecord)]


@dataclass(slots=True)
class Asking:
    """Sends queries of one change stream, in an event loop of the calling thread.

    Args:
        source: the change stream.
        dialect: the database's.
        mode: its partition mode.
    """

    source: SourceConfig
    dialect: Dialect
    mode: str = IMMUTABLE

    async def ask(
        self,
        start: int,
        end: int | None,
        *,
        token: str = INITIAL_TOKEN,
        heartbeat: int = SECOND,
        seconds: float = _BOUNDED,
        into: ProbeAnswer | None = None,
    ) -> ProbeAnswer:
        """The answer to one query, or what came of it within these seconds; both bounds are nanoseconds since 1970.

        ``into`` gets the records meanwhile.
        """
        answer = ProbeAnswer() if into is None else into
        client = SpannerClient(self.source.address, self.source.rpc_priority)
        walker = walk(self.dialect, self.mode)
        began = time.monotonic()
        try:
            async with client.connected(), asyncio.timeout(seconds):
                queries = PartitionQueries(
                    client,
                    self.dialect,
                    self.source.change_stream,
                    self.mode,
                    heartbeat=heartbeat,
                    decoder=lambda: Decoder(walker, None, lambda _: False),
                    clock=time.time_ns,
                )
                async with aclosing(queries.read(PartitionQuery(token, start, end))) as items:
                    async for found in items:
                        elapsed = time.monotonic() - began
                        answer.records += [(elapsed, one) for one in found if isinstance(one, Record)]
            answer.ended = "OK"
        except TimeoutError:
            pass
        except grpc.RpcError as error:
            answer.ended = str(classify(error))
        except (SilentStreamError, SpannerCdcError, UnknownRecordError) as error:
            answer.ended = str(error)
        return answer

    async def ask_all(self, start: int, end: int) -> tuple[ProbeAnswer, dict[str, ProbeAnswer]]:
        """The answers of the initial query and of every partition from ``start`` to ``end``, by token."""
        initial = await self.ask(start, end)
        waiting, answers = list(initial.children), dict[str, ProbeAnswer]()
        while waiting and len(answers) < _MOST_PARTITIONS:
            token, since = waiting.pop()
            if token not in answers and since <= end:
                answers[token] = await self.ask(max(since, start), end, token=token)
                waiting += answers[token].children
        return initial, answers


@dataclass(frozen=True, slots=True)
class ProbedRange:
    """The range of the commit timestamps, in Unix nanoseconds.

    Attributes:
        created: before the change streams were created.
        start: before the first commit.
        end: after the last commit, in the past.
        commit: of a transaction in between.
    """

    created: int
    start: int
    end: int
    commit: int


async def bounded_queries(asking: Asking, range_: ProbedRange) -> list[Observation]:
    """Observes queries over the past: the initial one, one that ends, and one of a single timestamp."""
    initial, answers = await asking.ask_all(range_.start, range_.end)
    seen = [
        Observation.seen(
            f"the initial query ({asking.mode})",
            f"{len(initial.children)} partitions in {initial.kinds}; it ended with {initial.ended}",
        )
    ]
    if not answers:
        return [*seen, Observation.not_probed("queries that end at end_timestamp", "there are no partitions")]
    with_children = [one for one in answers.values() if one.children]
    at_end = sum(any(start > range_.end for _, start in one.children) for one in with_children)
    seen.append(
        Observation.seen(
            f"queries that end at end_timestamp ({asking.mode})",
            f"{len(with_children)} of {len(answers)} returned child partitions records, {at_end} of them partitions"
            f" that start after the end; ended with: {_counted(one.ended for one in answers.values())}",
        )
    )
    lasts = [one.records[-1][1] for one in answers.values() if one.records]
    kinds = _counted(f"{type(one).__name__} {_place(timestamp_of(one), range_.end)} the end" for one in lasts)
    seen.append(Observation.seen(f"the last record of such a query ({asking.mode})", kinds or "there are no records"))
    holders = [token for token, one in answers.items() if any(r.commit_timestamp == range_.commit for r in one.data)]
    if holders:
        seen.append(await _inclusive(asking, holders[0], range_.commit))
    return seen


async def _inclusive(asking: Asking, token: str, commit: int) -> Observation:
    """Observes that both bounds of a query are inclusive, or that they are not."""
    about = f"both bounds of a query are inclusive ({asking.mode})"
    missing = []
    for name, start, end in (
        ("both", commit, commit),
        ("start", commit, commit + 1000),
        ("end", commit - 1000, commit),
    ):
        answer = await asking.ask(start, end, token=token)
        if answer.ended != "OK":
            return Observation.not_probed(about, f"a query from {format_rfc3339(start)} ended with {answer.ended}")
        if any(one.commit_timestamp == commit for one in answer.data):
            if name == "both":
                return Observation(
                    about, SelfTestVerdict.CONFIRMED, "a query from and to a commit timestamp returns it"
                )
        else:
            missing.append(name)
    return Observation(
        about, SelfTestVerdict.REFUTED, f"not returned with the commit timestamp as: {', '.join(missing)}"
    )


async def heartbeats(asking: Asking, now: int) -> Observation:
    """Observes the interval between heartbeats, against the requested one."""
    about = f"heartbeats asked each {HEARTBEAT / SECOND:g} s ({asking.mode})"
    initial = await asking.ask(now, now)
    if not initial.children:
        return Observation.not_probed(
            about, f"the initial query returned {initial.kinds}, and ended with {initial.ended}"
        )
    waiting, beats, answer = initial.children, list[tuple[float, int]](), initial
    began = time.monotonic()
    while waiting and len(beats) < 2 and (left := WATCHED - (time.monotonic() - began)) > 0:
        token, start = waiting.pop()  # a partition may end before it has two: then one that follows it is watched
        end = None if asking.mode == IMMUTABLE else now + _WINDOW  # the other mode needs an end
        answer = await asking.ask(max(start, now), end, token=token, heartbeat=HEARTBEAT, seconds=left)
        beats = [(at, one.timestamp) for at, one in answer.records if isinstance(one, HeartbeatRecord)]
        waiting += answer.children
    if len(beats) < 2:
        return Observation.seen(about, f"{len(beats)} within {WATCHED:g} s; the query: {answer.ended}")
    apart = [after - before for (before, _), (after, _) in pairwise(beats)]
    stamps = [(after - before) / SECOND for (_, before), (_, after) in pairwise(beats)]
    return Observation.seen(
        about,
        f"{len(beats)} within {WATCHED:g} s, {min(apart):.1f} to {max(apart):.1f} s apart; their timestamps"
        f" {min(stamps):.1f} to {max(stamps):.1f} s apart",
    )


async def refusals(asking: Asking, range_: ProbedRange, now: int) -> list[Observation]:
    """Observes the refusals of queries: starts that are too old, before the stream's creation, and in the future."""
    day = 24 * 3600 * SECOND
    seen = []
    for about, start, heartbeat in (
        ("a start before the change stream's creation", range_.created - 60 * SECOND, SECOND),
        ("a start that is older than any retention", now - 31 * day, SECOND),
        ("a start in an hour", now + 3600 * SECOND, SECOND),
        ("a heartbeat of 10 ms", now, SECOND // 100),
    ):
        answer = await asking.ask(start, start, heartbeat=heartbeat, seconds=5.0)
        seen.append(Observation.seen(about, answer.ended if answer.ended != "OK" else f"accepted: {answer.kinds}"))
    answer = await asking.ask(now, now, token="not-a-token", seconds=5.0)  # noqa: S106 - a partition token
    seen.append(Observation.seen("an unknown partition token", answer.ended))
    return seen


async def keys_only(asking: Asking, range_: ProbedRange) -> Observation:
    """Observes the records of a stream that watches a table's key alone: of an INSERT, an UPDATE and a DELETE."""
    about = "a stream that watches no column but the key"
    _, answers = await asking.ask_all(range_.start, range_.end)
    records = sorted((one for answer in answers.values() for one in answer.data), key=lambda one: one.order)
    texts = [
        f"{one.mod_type} with {', '.join(column.name for column in one.column_types) or 'no columns'}"
        for one in records
    ]
    return Observation.seen(about, "; ".join(texts) or "no data change records")


class HeldQuery:
    """Holds a query that is silent for as long as Spanner allows, to see whether its connection stays open.

    The reader pings a silent connection after 180 s; a server that takes that for abuse closes it.
    """

    def __init__(self, asking: Asking, now: int) -> None:
        self._asking = asking
        self._now = now
        self._answer = ProbeAnswer()
        self._held = 0.0

    @contextmanager
    def held(self) -> Iterator["HeldQuery"]:
        """Holds it while the context is open."""
        loop = asyncio.new_event_loop()
        task = loop.create_task(self._hold())
        thread = threading.Thread(target=self._run, args=(loop, task), name="held query", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            with suppress(RuntimeError):  # it has ended by itself, and closed its loop
                loop.call_soon_threadsafe(task.cancel)
            thread.join(_CANCELLED)

    def observation(self) -> Observation:
        """The observation; called once the context is left."""
        about = "a silent query whose connection is pinged"
        arrivals = [0.0, *(at for at, _ in self._answer.records), self._held]
        silence = max(after - before for before, after in pairwise(arrivals))
        held = f"open for {self._held:.0f} s, of which {silence:.0f} s without a message"
        if self._answer.ended != "still open":
            return Observation.seen(about, f"{held}; it ended with {self._answer.ended}, {self._answer.kinds}")
        if silence < PINGED_AFTER:
            return Observation.not_probed(about, f"{held}; the first ping comes after {PINGED_AFTER:.0f} s of silence")
        return Observation.seen(about, f"{held}; it stayed open until the self-test closed it")

    def _run(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
        asyncio.set_event_loop(loop)
        began = time.monotonic()
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        finally:
            self._held = time.monotonic() - began
            loop.close()

    async def _hold(self) -> None:
        initial = await self._asking.ask(self._now, self._now)
        if not initial.children:
            self._answer = initial
            return
        token, start = initial.children[-1]
        await self._asking.ask(
            max(start, self._now),
            None,
            token=token,
            heartbeat=_LONGEST_HEARTBEAT,
            seconds=_HELD,
            into=self._answer,
        )


def _place(timestamp: int, end: int) -> str:
    return "at" if timestamp == end else "before" if timestamp < end else "after"


def _counted(texts: Iterator[str]) -> str:
    return ", ".join(f"{count} x {text}" for text, count in Counter(texts).most_common())


MODES: Sequence[tuple[str, str]] = (("whole", IMMUTABLE), ("mutable", MUTABLE))
"""The change streams that are probed, each with its partition mode."""
