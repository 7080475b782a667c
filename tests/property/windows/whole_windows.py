"""Reads windows with the whole reader of each share, on virtual time, from a scripted Spanner with faults."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from random import Random
from typing import cast

from connector.core.changes import Changes
from connector.core.dialects import GOOGLESQL, MUTABLE, POSTGRESQL, Dialect
from connector.core.epoch import incomplete_transactions, minute_end
from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN
from connector.core.timestamps import SECOND
from connector.core.windows import Closed, Share, ShareReport, Window, closed
from connector.errors import UnreachableError
from connector.reader.change_stream import WINDOW
from connector.reader.placements.first_starts import FirstStarts
from connector.reader.placements.functions import StreamFunctions
from connector.reader.placements.listing import FunctionLister
from connector.reader.placements.windows import WindowFunctions
from connector.reader.read_state import QueriedStream
from connector.spanner.client import SpannerClient
from connector.spanner.clock import SpannerClock
from connector.spanner.decoding.decoder import decoder
from connector.spanner.discovery import ChangeStream
from connector.spanner.partition_query import PartitionQueries
from connector.telemetry.metrics import ReaderMetrics
from emulator.scenario.scenario import Scenario
from emulator.scripted.clock import ScriptedClock
from emulator.scripted.fault_plan import RECOVERABLE, FaultPlan
from emulator.scripted.framing import Framing
from emulator.scripted.spanner import ScriptedSpanner
from spark_sink.reading.windows.share_reader import ShareReader
from tests.property import virtual_time
from tests.property.reading.whole_reader import ORIGIN, EngineClient, of_change, of_record
from tests.property.windows.sharing import merged


class WholeWindows:
    """Reads a scenario from its origin to its horizon, in windows whose shares are dealt at random, with faults."""

    def __init__(self, seed: int, scenario: Scenario, *, windows: int, heartbeat: int) -> None:
        self.seed = seed
        self.scenario = scenario
        self.random = Random(seed)
        self.windows = windows
        self.heartbeat = heartbeat
        self.faults = FaultPlan(seed, share=0.3, kinds=RECOVERABLE)
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Reads all of it.

        Raises:
            AssertionError: something was lost, duplicated or out of order.
        """
        random.seed(self.seed)  # the pauses before a query is retried
        virtual_time.run(self._run())

    async def _run(self) -> None:
        history = self.scenario.history
        self._clock = ScriptedClock(ORIGIN)
        self._clock.start()
        self._engine = ScriptedSpanner(
            self.scenario, clock=self._clock, faults=self.faults, framing=Framing.drawn(self.seed)
        )
        low = history.origin - 1
        cut: tuple[CutPartition, ...] = (CutPartition(INITIAL_TOKEN, history.origin),)
        delivered = []
        functions = await self._functions()
        ends = sorted(self.random.randint(history.origin, history.horizon) for _ in range(self.windows))
        before: int | None = None
        for number, end in enumerate((*ends, history.horizon)):
            while low < end:
                window = Window(number, low, min(before or end, end, minute_end(low + 1)))
                await asyncio.sleep(max(0, window.high - self._clock.now()) / SECOND + self.random.choice((0.001, 5.0)))
                if functions is not None:
                    listed = await functions.listed(cut, low)
                    while listed < window.high:
                        await asyncio.sleep(1)
                        listed = await functions.listed(cut, low)
                    cut = await self._completed(functions, window.high)
                changes, result = await self._read(window, cut)
                assert not result.orphans
                before = await self._before(functions, result, window.high)
                if before is not None:
                    self.counts["refilled"] += 1
                    continue
                assert not incomplete_transactions(changes)
                delivered += [of_record(record) for record in changes.records()]
                low, cut = window.high, result.cut
        self._engine.close()
        self.counts.update(self.faults.struck)
        wanted = [of_change(change) for change in history.in_commit_order()]
        assert delivered == wanted, "something was lost, duplicated or out of order"

    async def _functions(self) -> WindowFunctions | None:
        scenario = self.scenario
        if scenario.placements is None:
            return None
        dialect, client = self._dialect, EngineClient(self._engine)
        options = {"per_placement_tvf": "true"}
        described = ChangeStream(scenario.change_stream, "7d", "NEW_ROW", scenario.mode, (), options=options)
        lister = FunctionLister(client, dialect, described, None)
        functions = StreamFunctions(lister, await lister.settled())

        async def spanner_clock() -> int:
            return self._clock.now()

        starts = FirstStarts(scenario.change_stream, self._queries(), spanner_clock, lambda: functions.names)
        return WindowFunctions(functions, starts)

    async def _before(self, functions: WindowFunctions | None, result: Closed, high: int) -> int | None:
        while functions is not None:
            with suppress(UnreachableError):
                first = await functions.refilled(result.emptied, high)
                return None if first is None else first - 1
            await asyncio.sleep(1)
        return None

    async def _completed(self, functions: WindowFunctions, high: int) -> tuple[CutPartition, ...]:
        while True:
            with suppress(UnreachableError):
                return await functions.cut(high)
            await asyncio.sleep(1)

    @property
    def _dialect(self) -> Dialect:
        return POSTGRESQL if self.scenario.dialect == "postgresql" else GOOGLESQL

    def _queries(self) -> PartitionQueries:
        scenario = self.scenario
        return PartitionQueries(
            cast("SpannerClient", EngineClient(self._engine)),
            self._dialect,
            scenario.change_stream,
            scenario.mode,
            heartbeat=self.heartbeat,
            decoder=decoder(self._dialect, scenario.mode),
            clock=self._clock.now,
        )

    async def _read(self, window: Window, cut: tuple[CutPartition, ...]) -> tuple[Changes, Closed]:
        parts: list[list[CutPartition]] = [[] for _ in range(self.random.randint(1, 4))]
        for at in cut:
            self.random.choice(parts).append(at)
        shares = [Share(number, tuple(part)) for number, part in enumerate(parts) if part or not cut]
        async with asyncio.timeout(24 * 3600), asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(self._share(window, share)) for share in shares]
        read, reports = zip(*(task.result() for task in reading), strict=True)
        self.counts["declined"] += sum(len(report.declined) for report in reports)
        mutable = self.scenario.mode == MUTABLE
        changes = merged(list(read), [share.number for share in shares], mutable=mutable)
        self.counts["repeats"] += sum(map(len, read)) - len(changes)
        assert sum(report.records for report in reports) == sum(map(len, read))
        return changes, closed(window, reports)

    async def _share(self, window: Window, share: Share) -> tuple[Changes, ShareReport]:
        while self.random.random() < 0.2:  # tasks that are lost
            lost = asyncio.create_task(self._once(window, share, []))
            await asyncio.wait({lost}, timeout=self.random.uniform(0, 0.2))
            self.counts["lost tasks"] += lost.cancel()
            await asyncio.wait({lost})
        parts: list[Changes] = []
        report = await self._once(window, share, parts)
        return Changes.joined(parts), report

    async def _once(self, window: Window, share: Share, parts: list[Changes]) -> ShareReport:
        scenario = self.scenario

        async def hand_on(changes: Changes) -> None:
            parts.append(changes)
            await asyncio.sleep(0.01)

        async def spanner_clock() -> int:
            return self._clock.now()

        stream = QueriedStream(
            scenario.change_stream,
            self._queries(),
            SpannerClock(spanner_clock, window.high + 1),
            self.heartbeat,
            WINDOW if scenario.mode == MUTABLE else None,
        )
        reader = ShareReader(
            stream,
            window,
            share,
            hand_on,
            metrics=ReaderMetrics(),
            late_records=None,
            budget=self.random.choice((20_000, 1024 * 1024)),
        )
        return await reader.read()


def of_seed(seed: int, placements: int = 0) -> WholeWindows:
    """Returns a reader of a history that is drawn from the seed, as are its faults, windows and shares.

    With ``placements`` beside the default one each has a read function.
    """
    scenario = Scenario.generate(
        seed,
        origin=ORIGIN,
        seconds=(5, 60)[seed % 2],
        value_capture_type=None,
        transactions=40 + seed % 160,
        churn=seed % 40,
        first_partitions=1 + seed % 5,
        placements=placements,
    )
    return WholeWindows(seed, scenario, windows=seed % 7, heartbeat=SECOND)
