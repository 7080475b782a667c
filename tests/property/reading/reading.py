"""Reads the model through the pure core alone, with random disturbances, and checks what is delivered.

Everything random is drawn from the seed: which query returns next, how fast each is, when one breaks or ends without
a reason, when the watermark moves, when an epoch is sealed, and when the process crashes and loses its memory.
"""

from dataclasses import dataclass
from random import Random

from connector.core.timestamps import MINUTE, SECOND
from tests.property.reading.change_stream import HistoryOptions
from tests.property.reading.checks import MutableHistoryChecks, check
from tests.property.reading.model_reader import ModelReader
from tests.property.reading.mutable_stream import WINDOW, MutableQuery, MutableStream


@dataclass(frozen=True, slots=True)
class Roughness:
    """The rates at which things go wrong, each from 0 to 1, and the number of steps in which they may."""

    breaks: float = 0.04
    ends_for_nothing: float = 0.03
    crashes: float = 0.005
    omits: float = 0.3
    """The rate at which a partition's query over the past omits, once, the record that ends it."""
    steps: int = 400


class Reading(ModelReader):
    """Reads a change stream from its start to its horizon, with crashes, in runs with later and later ends."""

    def __init__(self, seed: int, options: HistoryOptions, roughness: Roughness, ends: int) -> None:
        super().__init__(Random(seed), options, omits=roughness.omits, together=5 if seed % 7 == 6 else 1)
        self.roughness = roughness
        start = self.stream.start
        # Likely ends are commit timestamps, and the last instant before children begin.
        edges = [*self.stream.instants, *(p.start - 1 for p in self.stream.partitions.values())]
        later = [at for at in edges if start <= at <= self.stream.horizon] or [start]
        self._ends: list[int | None] = [*sorted(self.rng.choice(later) for _ in range(ends)), None]
        self._steps = roughness.steps // len(self._ends)

    def run(self) -> None:
        """Reads all of it, run after run.

        Raises:
            AssertionError: an invariant does not hold.
        """
        for end in self._ends:
            self.end = end
            self.start_over()
            self._rough()
            self._smooth()
        check(self.delivered == self.stream.expected, "something was lost, duplicated or out of order")

    def _rough(self) -> None:
        for _ in range(self._steps):
            if self.done:
                return
            chance = self.rng.random()
            if chance < self.roughness.crashes:
                self.counts["crashes"] += 1
                self.start_over()
            elif chance < 0.1:
                self._tick()
            elif chance < 0.2:
                self.advance()
            elif chance < 0.25:
                self.seal()
            elif chance < 0.4:
                self.schedule()
            elif self.queries:
                self._disturb()

    def _smooth(self) -> None:
        """Reads on without disturbances, so that the run ends in a bounded number of rounds."""
        self.now = self.stream.horizon
        for _ in range(40 * (len(self.stream.partitions) + 2)):
            for token in list(self.queries):
                for _ in range(4):
                    if token in self.queries:
                        self.receive(self.queries[token])
            self.advance()
            for _ in range(4):
                self.seal()
            self.schedule(everything=True)
            if self.done:
                check(self.graph.finished == (self.end is not None), "the graph does not report that it has finished")
                return
        states = {p.token: (p.state.value, p.start, p.progress) for p in self.graph}
        raise AssertionError(f"it is stalled at {self.watermark}, sealed {self.sealed.watermark}: {states}")

    @property
    def done(self) -> bool:
        return self.sealed.watermark >= (self.stream.horizon if self.end is None else self.end)

    def _tick(self) -> None:
        later = [at for at in self.stream.instants if at > self.now]
        if later:
            self.now = later[0] - self.rng.choice((0, 0, 1))

    def _disturb(self) -> None:
        tokens = list(self.queries)
        query = self.queries[self.rng.choices(tokens, [self.speeds[token] for token in tokens])[0]]
        chance = self.rng.random()
        if chance < self.roughness.breaks:
            self.counts["breaks among announcements" if query.announced else "breaks"] += 1
            self.broke(query.token)
        elif chance < self.roughness.breaks + self.roughness.ends_for_nothing:
            if query.may_end_for_nothing:
                self.counts["clean ends without children"] += 1
                self.ended(query)
        else:
            for _ in range(self.rng.choice((1, 1, 3))):
                if self.queries.get(query.token) is query:
                    self.receive(query)


class MutableReading(Reading):
    """Reads a change stream of the MUTABLE_KEY_RANGE mode, in windows."""

    stream_type = MutableStream
    query_type = MutableQuery
    checks_type = MutableHistoryChecks

    def bound(self, start: int) -> int | None:
        window = max(self.now, start) + self.rng.choice((0, 1, SECOND, MINUTE, WINDOW, WINDOW))
        return window if self.end is None else min(window, self.end)
