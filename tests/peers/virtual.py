"""The reader on virtual time, without gRPC: what it asks, what it delivers, and each checkpoint that it seals."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import cast

from connector.core.dialects import GOOGLESQL, MUTABLE, POSTGRESQL, Dialect
from connector.core.epoch import Epoch, incomplete_transactions
from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN, DataChangeRecord
from connector.core.timestamps import SECOND, parse
from connector.decoding.decoder import decoder
from connector.reader.change_stream import WINDOW
from connector.reader.flow_control import FlowControl
from connector.reader.scheduler import Range, Scheduler
from connector.spanner.client import Parameter, SpannerClient
from connector.spanner.partition_query import PartitionQueries
from connector.telemetry.metrics import ReaderMetrics
from emulator import FaultPlan, Framing, Scenario, ScriptedClock, ScriptedSpanner
from tests.emulator.scripted.scripted_stream import at
from tests.property import virtual_time
from tests.property.reading.whole_reader import EngineClient

BUDGET = 1024 * 1024


@dataclass(slots=True)
class Asked:
    """A query as it was sent, when, and when it ended, by the server's clock; the initial query's token is empty."""

    token: str
    start: int
    end: int | None
    sent: int
    ended: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a sealed epoch leaves to go on from, and the singers delivered up to then."""

    watermark: int
    cut: tuple[CutPartition, ...]
    singers: tuple[int, ...] = ()

    @classmethod
    def beginning(cls, start: int) -> "Checkpoint":
        """The checkpoint of a stream that is read from `start`, inclusive."""
        return cls(start - 1, (CutPartition(INITIAL_TOKEN, start),))


class Gauges(ReaderMetrics):
    """Remembers each watermark, and how much was held at most."""

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
    """An epoch sink, and all that can be told of a run."""

    at: Checkpoint
    no_room_for: float = 0.0
    """Seconds that the first epoch waits for room."""
    epochs: list[Epoch] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    metrics: Gauges = field(default_factory=Gauges)
    refused: int = 0

    @property
    def singers(self) -> list[int]:
        """The rows delivered, in order."""
        return [singer for epoch in self.epochs for singer in singers_of(epoch.records)]

    def queries(self, token: str) -> list[Asked]:
        """A partition's queries."""
        return [asked for asked in self.asked if asked.token == token]

    async def room(self, stopping: asyncio.Event) -> bool:
        if self.no_room_for:
            await asyncio.sleep(self.no_room_for)
            self.no_room_for = 0.0
        return True

    async def deliver(self, epoch: Epoch, cut: list[CutPartition], *, final: bool) -> None:
        await asyncio.sleep(0)
        assert epoch.low == self.at.watermark < epoch.high, "the watermark went back, or left a gap"
        assert not incomplete_transactions(epoch.changes), "a transaction is incomplete"
        self.epochs.append(epoch)
        self.at = Checkpoint(epoch.high, tuple(cut), (*self.at.singers, *singers_of(epoch.records)))
        self.checkpoints.append(self.at)


class Wire(EngineClient):
    """Notes every query."""

    def __init__(self, engine: ScriptedSpanner, dialect: Dialect, asked: list[Asked]) -> None:
        super().__init__(engine)
        self._clock = engine.clock
        self._names = dialect.parameters
        self._asked = asked

    async def stream(
        self, sql: str, parameters: Mapping[str, Parameter], *, behind: bool = False
    ) -> AsyncGenerator[list[bytes]]:
        start, end, token, _ = (parameters[name].value for name in self._names)
        assert start is not None
        noted = Asked(token or INITIAL_TOKEN, parse(start), None if end is None else parse(end), self._clock.now())
        self._asked.append(noted)
        try:
            async with aclosing(super().stream(sql, parameters)) as messages:
                async for message in messages:
                    yield message
        finally:
            noted.ended = self._clock.now()


def singers_of(records: Iterable[DataChangeRecord]) -> list[int]:
    """The rows of records, in order."""
    return [int(json.loads(mod.keys)["SingerId"]) for record in records for mod in record.mods]


def read(
    told: Scenario,
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
    """Reads a stream from a checkpoint, or from `start`, to `end`, or until it dies with all that it remembers.

    Times in nanoseconds, but for `now`, the server's time at the beginning, and `dies_at`: seconds after the origin.
    What is not given is the history's own. A reader that does not come to its end fails.
    """
    history = told.history
    start = history.origin if start is None else start
    end = history.horizon if end is None else end
    reading = Reading(begin or Checkpoint.beginning(start), no_room_for)
    random.seed(7)  # the pauses before a query is sent again

    async def main() -> None:
        clock = ScriptedClock(at(now))
        clock.start()
        engine = ScriptedSpanner(told, clock=clock, faults=faults, framing=Framing.plain())
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
        assert (dies_at is None) == bool(done), "it did not come to an end" if not done else "it ended too early"

    virtual_time.run(main())
    return reading


def _scheduler(reading: Reading, engine: ScriptedSpanner, end: int, heartbeat: int, budget: int) -> Scheduler:
    told, clock = engine.scenario, engine.clock
    dialect = POSTGRESQL if told.dialect == "postgresql" else GOOGLESQL

    async def spanner_clock() -> int:
        return clock.now()

    queries = PartitionQueries(
        cast("SpannerClient", Wire(engine, dialect, reading.asked)),
        dialect,
        told.change_stream,
        told.mode,
        heartbeat=heartbeat,
        decoder=decoder(dialect, told.mode),
        clock=clock.now,
    )
    return Scheduler(
        queries,
        told.change_stream,
        Range(reading.at.cut, reading.at.watermark, end),
        reading,
        seal_interval=0,
        window=WINDOW if told.mode == MUTABLE else None,
        spanner_clock=spanner_clock,
        known_clock=clock.now(),
        flow=FlowControl(budget),
        metrics=reading.metrics,
        heartbeat=heartbeat,
    )


def all_singers(told: Scenario) -> list[int]:
    """Every row of a history, in commit order."""
    return [int(str(mod.keys["SingerId"])) for change in told.history.in_commit_order() for mod in change.mods]


def goes_on_from_everywhere(
    told: Scenario,
    first: Reading,
    *,
    now: float,
    budget: int = BUDGET,
    faults: Callable[[], FaultPlan] = FaultPlan,
) -> list[Reading]:
    """Restarts at every checkpoint; fails where something is lost or comes twice, or where Spanner refuses a query."""
    expected, restarts = all_singers(told), []
    for checkpoint in first.checkpoints:
        if checkpoint.watermark >= told.history.horizon:
            continue
        after = read(told, begin=checkpoint, now=now, budget=budget, faults=faults())
        assert list(after.at.singers) == expected, f"after {checkpoint}"
        assert after.refused == 0
        restarts.append(after)
    return restarts
