"""Runs the reader on virtual time without gRPC, and records its queries, its epochs and its checkpoints."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import cast

from connector.core.dialects import GOOGLESQL, MUTABLE, POSTGRESQL, Dialect
from connector.core.epoch import SealedEpoch, incomplete_transactions
from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN, DataChangeRecord
from connector.core.timestamps import SECOND, parse
from connector.reader.change_stream import WINDOW
from connector.reader.flow_control import FlowControl
from connector.reader.read_state import QueriedStream, Range
from connector.reader.scheduler import Scheduler
from connector.spanner.client import Parameter, SpannerClient
from connector.spanner.clock import SpannerClock
from connector.spanner.decoding.decoder import decoder
from connector.spanner.partition_query import PartitionQueries
from connector.telemetry.metrics import ReaderMetrics
from emulator import FaultPlan, Framing, Scenario, ScriptedClock, ScriptedSpanner
from tests.emulator.scripted.scripted_stream import at
from tests.property import virtual_time
from tests.property.reading.whole_reader import EngineClient

BUDGET = 1024 * 1024


@dataclass(slots=True)
class SentQuery:
    """A query, and when it was sent and ended by the server's clock; the initial query's token is empty."""

    token: str
    start: int
    end: int | None
    sent: int
    ended: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of a sealed epoch, and the singers delivered up to it."""

    watermark: int
    cut: tuple[CutPartition, ...]
    singers: tuple[int, ...] = ()

    @classmethod
    def beginning(cls, start: int) -> "Checkpoint":
        """Returns the checkpoint from which a stream is read from `start` on, inclusive."""
        return cls(start - 1, (CutPartition(INITIAL_TOKEN, start),))


class Gauges(ReaderMetrics):
    """Metrics that remember every watermark, and the most bytes that were held."""

    def __init__(self) -> None:
        object.__setattr__(self, "watermarks", [])
        object.__setattr__(self, "most_held", 0)
        super().__init__()

    watermarks: list[int]
    most_held: int

    def __setattr__(self, name: str, value: object) -> None:
        if name == "watermark":
            assert isinstance(value, int)
            self.watermarks.append(value)
        if name == "held_bytes":
            assert isinstance(value, int)
            object.__setattr__(self, "most_held", max(self.most_held, value))
        super().__setattr__(name, value)


@dataclass(slots=True)
class Reading:
    """An epoch sink, and all that is recorded of one run of the reader."""

    at: Checkpoint
    no_room_for: float = 0.0
    """Seconds for which the first epoch waits for room."""
    epochs: list[SealedEpoch] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    sent: list[SentQuery] = field(default_factory=list)
    metrics: Gauges = field(default_factory=Gauges)
    refused: int = 0

    @property
    def singers(self) -> list[int]:
        """The delivered rows, in order."""
        return [singer for epoch in self.epochs for singer in singers_of(epoch.records)]

    def queries(self, token: str) -> list[SentQuery]:
        """Returns a partition's queries."""
        return [query for query in self.sent if query.token == token]

    async def room(self, stopping: asyncio.Event) -> bool:
        if self.no_room_for:
            await asyncio.sleep(self.no_room_for)
            self.no_room_for = 0.0
        return True

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        await asyncio.sleep(0)
        assert epoch.low == self.at.watermark < epoch.high, "the watermark moved back, or left a gap"
        assert not incomplete_transactions(epoch.changes), "a transaction is incomplete"
        self.epochs.append(epoch)
        self.at = Checkpoint(epoch.high, tuple(cut), (*self.at.singers, *singers_of(epoch.records)))
        self.checkpoints.append(self.at)


class Wire(EngineClient):
    """A client that records every query."""

    def __init__(self, engine: ScriptedSpanner, dialect: Dialect, sent: list[SentQuery]) -> None:
        super().__init__(engine)
        self._clock = engine.clock
        self._names = dialect.parameters
        self._sent = sent

    async def stream(
        self, sql: str, parameters: Mapping[str, Parameter], *, behind: bool = False
    ) -> AsyncGenerator[list[bytes]]:
        start, end, token, _ = (parameters[name].value for name in self._names)
        assert start is not None
        query = SentQuery(token or INITIAL_TOKEN, parse(start), None if end is None else parse(end), self._clock.now())
        self._sent.append(query)
        try:
            async with aclosing(super().stream(sql, parameters)) as messages:
                async for message in messages:
                    yield message
        finally:
            query.ended = self._clock.now()


def singers_of(records: Iterable[DataChangeRecord]) -> list[int]:
    """Returns the rows of records, in order."""
    return [int(json.loads(mod.keys)["SingerId"]) for record in records for mod in record.mods]


def read(
    scenario: Scenario,
    *,
    begin: Checkpoint | None = None,
    start: int | None = None,
    end: int | None = None,
    now: float = 0.0,
    dies_at: float | None = None,
    faults: FaultPlan | None = None,
    heartbeat: int = SECOND,
    budget: int = BUDGET,
    no_room_for: float = 0.0,
) -> Reading:
    """Reads a stream from a checkpoint, or from `start`, to `end`, or until it crashes at `dies_at`.

    Times are nanoseconds. Only `now`, the server's time at the beginning, and `dies_at` are seconds after the origin.
    The history's start and end are the defaults. A reader that does not reach its end raises AssertionError.
    """
    history = scenario.history
    start = history.origin if start is None else start
    end = history.horizon if end is None else end
    reading = Reading(begin or Checkpoint.beginning(start), no_room_for)
    random.seed(7)  # the pauses before a query is retried

    async def main() -> None:
        clock = ScriptedClock(at(now))
        clock.start()
        engine = ScriptedSpanner(scenario, clock=clock, faults=faults, framing=Framing.plain())
        running = asyncio.create_task(_scheduler(reading, engine, end, heartbeat, budget).run())
        patience = max(0, end - clock.now()) / SECOND + 7200 if dies_at is None else dies_at - now
        done, _ = await asyncio.wait({running}, timeout=patience)
        if not done:
            running.cancel()
            await asyncio.wait({running})
        reading.refused = engine.refused
        engine.close()
        if done:
            await running
        assert (dies_at is None) == bool(done), "the reader did not end" if not done else "the reader ended too early"

    virtual_time.run(main())
    return reading


def _scheduler(reading: Reading, engine: ScriptedSpanner, end: int, heartbeat: int, budget: int) -> Scheduler:
    scenario, clock = engine.scenario, engine.clock
    dialect = POSTGRESQL if scenario.dialect == "postgresql" else GOOGLESQL

    async def spanner_clock() -> int:
        return clock.now()

    queries = PartitionQueries(
        cast("SpannerClient", Wire(engine, dialect, reading.sent)),
        dialect,
        scenario.change_stream,
        scenario.mode,
        heartbeat=heartbeat,
        decoder=decoder(dialect, scenario.mode),
        clock=clock.now,
    )
    stream = QueriedStream(
        scenario.change_stream,
        queries,
        SpannerClock(spanner_clock, clock.now()),
        heartbeat,
        WINDOW if scenario.mode == MUTABLE else None,
    )
    return Scheduler(
        stream,
        Range(reading.at.cut, reading.at.watermark, end),
        reading,
        seal_interval=0,
        flow=FlowControl(budget),
        metrics=reading.metrics,
    )


def all_singers(scenario: Scenario) -> list[int]:
    """Returns every row of a history, in commit order."""
    return [int(str(mod.keys["SingerId"])) for change in scenario.history.in_commit_order() for mod in change.mods]


def resumes_from_everywhere(
    scenario: Scenario,
    first: Reading,
    *,
    now: float,
    budget: int = BUDGET,
    faults: Callable[[], FaultPlan] = FaultPlan,
) -> list[Reading]:
    """Restarts at every checkpoint.

    Raises:
        AssertionError: a row is lost or duplicated, or Spanner rejects a query.
    """
    expected, restarts = all_singers(scenario), []
    for checkpoint in first.checkpoints:
        if checkpoint.watermark >= scenario.history.horizon:
            continue
        after = read(scenario, begin=checkpoint, now=now, budget=budget, faults=faults())
        assert list(after.at.singers) == expected, f"after {checkpoint}"
        assert after.refused == 0
        restarts.append(after)
    return restarts
