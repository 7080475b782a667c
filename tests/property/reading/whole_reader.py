"""Runs the whole reader on virtual time, without gRPC and disk.

The scheduler, queries, decoder, graph and epochs are the real ones, and read a scripted Spanner with faults. The reader
crashes at random times, loses its memory, and continues from the last sealed epoch.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from random import Random
from typing import cast
from unittest.mock import patch

import grpc
import orjson
from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import Value

from connector.core.dialects import GOOGLESQL, MUTABLE, POSTGRESQL
from connector.core.epoch import SealedEpoch, incomplete_transactions, minute_end
from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN, DataChangeRecord
from connector.core.timestamps import SECOND
from connector.errors import StreamError
from connector.reader.change_stream import WINDOW
from connector.reader.flow_control import FlowControl
from connector.reader.placements.first_starts import FirstStarts
from connector.reader.placements.functions import StreamFunctions
from connector.reader.placements.listing import FunctionLister
from connector.reader.placements.watching import FunctionsWatch
from connector.reader.read_state import QueriedStream, Range
from connector.reader.scheduler import Scheduler
from connector.spanner.client import Parameter, SpannerClient
from connector.spanner.clock import SpannerClock
from connector.spanner.decoding.decoder import FEW, decoder
from connector.spanner.discovery import ChangeStream
from connector.spanner.partition_query import PartitionQueries
from connector.telemetry.metrics import ReaderMetrics
from emulator.scenario.history import Change
from emulator.scenario.scenario import Scenario
from emulator.scripted.clock import ScriptedClock
from emulator.scripted.fault_plan import RECOVERABLE, FaultPlan
from emulator.scripted.framing import Framing
from emulator.scripted.spanner import ScriptedSpanner
from emulator.scripted.stream_query import ScriptedError
from tests.property import virtual_time

ORIGIN = 1_790_000_000 * SECOND + 123_456_789
_PartialResultSet = types.PartialResultSet.pb()
_NO_METADATA = grpc.aio.Metadata()

Delivered = tuple[int, str, str, str, tuple[str, ...]]
"""Commit timestamp, transaction, record sequence, table, and each mod's keys, new and old values as canonical JSON."""


class EngineClient:
    """A client whose server runs in the same event loop, without a network."""

    def __init__(self, engine: ScriptedSpanner) -> None:
        self._engine = engine

    @property
    def database(self) -> str:
        return "projects/p/instances/i/databases/d"

    async def rows(self, sql: str, *, at: int | None = None) -> list[list[object]]:
        await asyncio.sleep(0.005)
        try:
            answer = self._engine.describe(sql, {}, at)
        except ScriptedError as error:
            raise StreamError(error.message) from error
        return [[Value.FromString(cell).string_value for cell in row] for row in answer.rows]

    async def stream(
        self, sql: str, parameters: Mapping[str, Parameter], *, behind: bool = False
    ) -> AsyncGenerator[list[bytes]]:
        values = {name: parameter.value for name, parameter in parameters.items()}
        try:
            async with aclosing(self._engine.execute(sql, values)) as messages:
                async for message in messages:
                    yield [message]
        except ScriptedError as error:
            raise grpc.aio.AioRpcError(error.code, _NO_METADATA, _NO_METADATA, error.message) from error


class Memory:
    """An epoch sink that keeps epochs in memory; it fails at once if one is delivered twice, or in parts.

    ``sealed`` is called with the watermark after each epoch.
    """

    def __init__(
        self, start: int, random: Random, *, may_be_empty: bool = False, sealed: Callable[[int], None] = lambda _: None
    ) -> None:
        self._sealed = sealed
        self._may_be_empty = may_be_empty
        self.watermark = start - 1
        self.cut: tuple[CutPartition, ...] = (CutPartition(INITIAL_TOKEN, start),)
        self.delivered: list[Delivered] = []
        self.epochs = 0
        self._random = random

    async def room(self, stopping: asyncio.Event) -> bool:
        if self._random.random() < 0.05:
            await asyncio.sleep(self._random.random())
        return True

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        await asyncio.sleep(self._random.choice((0.0, 0.001, 0.05)))
        assert epoch.low == self.watermark < epoch.high, "epochs leave a gap, or overlap"
        assert minute_end(epoch.low + 1) >= epoch.high, "an epoch spans two minutes"
        assert all(epoch.low < record.commit_timestamp <= epoch.high for record in epoch.records)
        assert not incomplete_transactions(epoch.changes), "an epoch splits a transaction"
        assert cut or self._may_be_empty, "a cut is empty"
        self.delivered += [of_record(record) for record in epoch.records]
        self.watermark, self.cut = epoch.high, tuple(cut)
        self.epochs += 1
        self._sealed(self.watermark)


def of_record(record: DataChangeRecord) -> Delivered:
    mods = tuple(canonical(*map(orjson.loads, (mod.keys, mod.new_values, mod.old_values))) for mod in record.mods)
    return (
        record.commit_timestamp,
        record.server_transaction_id,
        record.record_sequence,
        record.table_name,
        mods,
    )


def of_change(change: Change) -> Delivered:
    mods = tuple(canonical(mod.keys, mod.new_values, mod.old_values) for mod in change.mods)
    return (change.commit_timestamp, change.server_transaction_id, change.record_sequence, change.table, mods)


def canonical(*parts: object) -> str:
    return json.dumps(parts, sort_keys=True)


class WholeReader:
    """Reads a scenario from its origin to its horizon, with faults and ``crashes``.

    With ``in_columns`` all rows are decoded as columns where possible, however few they are.

    Raises:
        AssertionError: something was lost, duplicated, out of order or split, or the reader is stalled.
    """

    def __init__(
        self,
        seed: int,
        scenario: Scenario,
        *,
        crashes: int = 3,
        faults: FaultPlan | None = None,
        heartbeat: int = SECOND,
        budget: int = 1024 * 1024,
        in_columns: bool = False,
    ) -> None:
        self.seed = seed
        self.scenario = scenario
        self.random = Random(seed)
        self.drops = Random(f"dropped placements of {seed}")
        self.faults = faults or FaultPlan(seed, share=0.3, kinds=RECOVERABLE)
        self.heartbeat = heartbeat
        self.budget = budget
        self.crashes = crashes
        self.in_columns = in_columns
        self.counts: Counter[str] = Counter()
        self.most_open = 0
        self.metrics: list[ReaderMetrics] = []

    def run(self) -> None:
        random.seed(self.seed)  # the pauses before a query is retried
        with patch("connector.spanner.decoding.decoder.FEW", 0 if self.in_columns else FEW):
            virtual_time.run(self._run())

    async def _run(self) -> None:
        history = self.scenario.history
        clock = ScriptedClock(ORIGIN)
        clock.start()
        engine = ScriptedSpanner(self.scenario, clock=clock, faults=self.faults, framing=Framing.drawn(self.seed))
        dropped = set[str]()

        def drop_placements(watermark: int) -> None:
            for name, end in self.scenario.emptied.items():
                if end <= watermark and name not in dropped and self.drops.random() < 0.3:
                    engine.drop_placement(name)
                    dropped.add(name)
                    self.counts["dropped placements"] += 1

        may_be_empty = self.scenario.placements is not None
        sink = Memory(history.origin, self.random, may_be_empty=may_be_empty, sealed=drop_placements)
        length = (history.horizon - history.origin) / SECOND
        for _ in range(self.crashes):
            task = asyncio.create_task(self._read(engine, sink, clock))
            await asyncio.wait({task}, timeout=self.random.uniform(0.0, 2 * length / max(self.crashes, 1)))
            died = task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                await task  # raises what failed
            self.counts["crashes"] += died
        async with asyncio.timeout(4 * length + 3600):
            await self._read(engine, sink, clock)
        self.most_open = engine.most_open
        engine.close()
        self.counts["epochs"] += sink.epochs
        self.counts.update(self.faults.struck)
        wanted = [of_change(change) for change in history.in_commit_order()]
        assert sink.delivered == wanted, "something was lost, duplicated or out of order"
        assert sink.watermark >= history.horizon
        assert all(metrics.late_records == metrics.incomplete_transactions == 0 for metrics in self.metrics)

    async def _read(self, engine: ScriptedSpanner, sink: Memory, clock: ScriptedClock) -> None:
        scenario = self.scenario
        dialect = POSTGRESQL if scenario.dialect == "postgresql" else GOOGLESQL

        async def spanner_clock() -> int:
            return clock.now()

        queries = PartitionQueries(
            cast("SpannerClient", EngineClient(engine)),
            dialect,
            scenario.change_stream,
            scenario.mode,
            heartbeat=self.heartbeat,
            decoder=decoder(dialect, scenario.mode),
            clock=clock.now,
        )
        metrics = ReaderMetrics()
        self.metrics.append(metrics)
        stream = QueriedStream(
            scenario.change_stream,
            queries,
            SpannerClock(spanner_clock, clock.now()),
            self.heartbeat,
            WINDOW if scenario.mode == MUTABLE else None,
        )
        cut = sink.cut
        if scenario.placements is not None:
            options = {"per_placement_tvf": "true"}
            described = ChangeStream(scenario.change_stream, "7d", "NEW_ROW", scenario.mode, (), options=options)
            lister = FunctionLister(EngineClient(engine), dialect, described, None)
            functions = StreamFunctions(lister, await lister.settled())
            cut = await functions.completed(cut, sink.watermark)
            watch = FunctionsWatch(lister, functions.listed, self.heartbeat)
            starts = FirstStarts(scenario.change_stream, queries, spanner_clock, lambda: watch.functions)
            stream = replace(stream, functions=watch, first_starts=starts)
        await Scheduler(
            stream,
            Range(cut, sink.watermark, scenario.history.horizon),
            sink,
            seal_interval=SECOND // 10,
            flow=FlowControl(self.budget),
            metrics=metrics,
        ).run()


def of_seed(seed: int, placements: int | None = 0) -> WholeReader:
    """Returns a reader of a history that is drawn from the seed, as are its faults and its crashes.

    For every other eight seeds all rows are decoded as columns where possible. With ``placements`` beside the default
    one each has a read function, and some are added, left and dropped while the stream is read.
    """
    hours = seed % 8 == 7
    scenario = Scenario.generate(
        seed,
        origin=ORIGIN,
        seconds=7200 if hours else (5, 60)[seed % 2],
        value_capture_type=None,
        transactions=40 + seed % 160,
        churn=seed % 40,
        first_partitions=1 + seed % 5,
        placements=placements,
    )
    heartbeat = 30 * SECOND if hours else SECOND
    budget = 20_000 if seed % 3 else 1024 * 1024
    in_columns = seed // 8 % 2 > 0
    return WholeReader(seed, scenario, crashes=seed % 5, heartbeat=heartbeat, budget=budget, in_columns=in_columns)
