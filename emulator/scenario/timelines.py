"""The partitions of a scripted change stream, drawn at random: which of them lives when, and which keys it owns.

Keys are hashed to places from 0 to WHOLE. A `Span` says that a partition owns some places for some commit timestamps;
at any instant the spans tile all places, so that a key's changes lie on one partition at a time. What partitions say
of each other (`Notice`) is kept apart from their records: its place among the changes of the same instant is known
only once those are.

In the IMMUTABLE_KEY_RANGE mode keys and partitions change hands together: a partition owns the same places all its
life. In the MUTABLE_KEY_RANGE mode keys that move at T leave with their changes at T behind them: these are on the
source, and those after T on the destination. Only a destination that starts at T may hold the changes at T itself.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import TypeVar

from connector.core.timestamps import MINUTE, SECOND
from emulator.scenario.history import (
    Child,
    Children,
    Partition,
    PartitionEnd,
    PartitionEvent,
    PartitionMode,
    PartitionStart,
)

WHOLE = 1 << 32
"""How many places there are."""

_T = TypeVar("_T")

Announcement = Children | PartitionStart | PartitionEnd | PartitionEvent


@dataclass(slots=True)
class Span:
    """The partition owns the places from `low` to `high`, for commit timestamps from `since` to `until`.

    The upper bounds are exclusive; without `until` it owns them for ever.
    """

    low: int
    high: int
    token: str
    since: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """What a partition says of partitions; among the records of its instant it stands by `rank`, changes by 0.

    The record sequence of `said` is still to come, unless it is set.
    """

    token: str
    rank: int
    said: Announcement


@dataclass(slots=True)
class Timelines:
    """Partitions without their records, the spans they own, and their notices, in the order of time."""

    partitions: dict[str, Partition] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    _instants: list[int] = field(default_factory=list)
    _tilings: dict[int, tuple[list[int], list[str]]] = field(default_factory=dict)

    def owner(self, place: int, at: int) -> str:
        """Give the token of the partition that holds the changes committed at `at` of the keys at this place.

        The timelines must be complete, and `at` not before their first instant.
        """
        if not self._instants:
            self._instants = sorted({span.since for span in self.spans})
        number = bisect_right(self._instants, at)
        if number not in self._tilings:
            owned = sorted(
                (span.low, span.token)
                for span in self.spans
                if span.since <= at and (span.until is None or at < span.until)
            )
            self._tilings[number] = ([low for low, _ in owned], [token for _, token in owned])
        lows, tokens = self._tilings[number]
        return tokens[bisect_right(lows, place) - 1]

    def marks(self) -> list[int]:
        """Give the instants at which a partition starts or ends or keys move, each once, in order."""
        return sorted({span.since for span in self.spans} | {notice.said.timestamp for notice in self.notices})


def timelines(
    random: Random, mode: PartitionMode, origin: int, horizon: int, *, churn: int, first_partitions: int
) -> Timelines:
    """Draw timelines from `origin` to `horizon`, of `first_partitions` partitions at first and `churn` events.

    Some of the events share an instant, some follow each other within a nanosecond. One that finds no partition it
    could befall is left out.
    """
    stream: _Immutable | _Mutable
    if mode == "IMMUTABLE_KEY_RANGE":
        stream = _Immutable(random, origin, first_partitions)
    else:
        stream = _Mutable(random, origin, horizon, first_partitions)
    for at in instants(random, origin + 1, horizon, churn):
        stream.step(at)
    stream.timelines.notices.sort(key=lambda notice: (notice.said.timestamp, notice.rank))
    return stream.timelines


def instants(random: Random, first: int, last: int, count: int, marks: Sequence[int] = ()) -> list[int]:
    """Draw instants from `first` to `last`, both inclusive, in order, with a liking for the awkward ones.

    These are: equal ones, a nanosecond apart, a minute's last nanosecond and its first, those at and next to `marks`.
    """
    drawn: list[int] = []
    for _ in range(count):
        roll = random.random()
        if drawn and roll < 0.2:
            at = random.choice(drawn) + random.choice((0, 0, 1, 2, 1000))
        elif marks and roll < 0.4:
            at = random.choice(marks) + random.choice((-1, 0, 0, 1))
        else:
            at = random.randint(first, last)
            if roll > 0.93:
                at += MINUTE - at % MINUTE - random.choice((0, 1))
        drawn.append(at if first <= at <= last else random.randint(first, last))
    return sorted(drawn)


def draw_token(random: Random) -> str:
    """Draw a partition token; it tells nothing of where the partition came from."""
    return base64.urlsafe_b64encode(random.randbytes(36)).decode()


class _Immutable:
    """Draws the timelines of the IMMUTABLE_KEY_RANGE mode. `_tiling` is what is alive, in the order of places."""

    def __init__(self, random: Random, origin: int, first_partitions: int) -> None:
        self.timelines = Timelines()
        self._random = random
        self._tiling = self._born(origin, 0, WHOLE, first_partitions, ())
        self._youngest = 0

    def step(self, at: int) -> None:
        """Split, merge, move or mix partitions that are neighbours; often the youngest ones, whose life is short."""
        random = self._random
        shapes = ((1, 2), (1, 2), (1, 3), (1, 1), (2, 1), (2, 1), (3, 1), (2, 2))
        width, heirs = random.choice([shape for shape in shapes if shape[0] <= len(self._tiling)])
        place = self._youngest if random.random() < 0.3 else random.randrange(len(self._tiling))
        place = min(place, len(self._tiling) - width)
        taken = self._tiling[place : place + width]
        if any(span.since == at for span in taken):  # it would end in the instant it starts
            return
        parents = tuple(span.token for span in random.sample(taken, width))
        children = self._born(at, taken[0].low, taken[-1].high, heirs, parents)
        for span in taken:
            span.until = self.timelines.partitions[span.token].end = at
            self._announce(span.token, at, [Child(child.token, parents) for child in children])
        self._tiling[place : place + width] = children
        self._youngest = place

    def _born(self, at: int, low: int, high: int, count: int, parents: tuple[str, ...]) -> list[Span]:
        bounds = [low, *sorted(self._random.sample(range(low + 1, high), count - 1)), high]
        spans = []
        for lower, upper in pairwise(bounds):
            token = draw_token(self._random)
            self.timelines.partitions[token] = Partition(token, at, parents)
            spans.append(Span(lower, upper, token, at))
        self.timelines.spans += spans
        return spans

    def _announce(self, parent: str, at: int, children: list[Child]) -> None:
        """Announce all children by this parent, in one record or several."""
        for number, group in enumerate(groups(self._random, children)):
            self.timelines.notices.append(Notice(parent, 1, Children(at, f"{number:08d}", tuple(group))))


class _Mutable:
    """Draws the timelines of the MUTABLE_KEY_RANGE mode. `_owned` is what is alive, with the spans it owns now."""

    def __init__(self, random: Random, origin: int, horizon: int, first_partitions: int) -> None:
        self.timelines = Timelines()
        self._random = random
        self._horizon = horizon
        self._most = 2 * first_partitions + 2
        self._owned: dict[str, list[Span]] = {}
        self._now = origin
        self._touched: set[str] = set()
        bounds = [0, *sorted(random.sample(range(1, WHOLE), first_partitions - 1)), WHOLE]
        for low, high in pairwise(bounds):
            self._own(Span(low, high, self._born(origin), origin))

    def step(self, at: int) -> None:
        """Let partitions start, let keys move, let partitions end; one that this instant touched is left alone."""
        if at != self._now:
            self._now = at
            self._touched = set()
        free = [token for token in self._owned if token not in self._touched]
        owners = [token for token in free if self._owned[token]]
        if not owners:
            return
        grow = self._merge if len(self._owned) > self._most else self._split
        steps = (grow, grow, self._merge, self._move, self._replace, self._swap, self._blink)
        self._random.choice(steps)(self._random.choice(owners), free)

    def _split(self, source: str, free: list[str]) -> None:
        """One to two partitions start, and some of the source's keys move there; or none yet."""
        started = [self._born(self._now) for _ in range(self._random.choice((1, 1, 2)))]
        self._announce(self._random.choice((source, *free)), started)
        if self._random.random() < 0.8:
            self._transfer([(piece, token) for token in started for piece in self._piece(source)])

    def _move(self, source: str, free: list[str]) -> None:
        """Some of the source's keys, or all, move to a living partition, to one without keys if there is one."""
        others = [token for token in free if token != source]
        empty = [token for token in others if not self._owned[token]]
        if others:
            destination = self._random.choice(empty or others)
            self._transfer([(piece, destination) for piece in self._piece(source)])

    def _merge(self, source: str, free: list[str]) -> None:
        """All of the source's keys move to others, and it ends, at once or a little later; or one without keys ends."""
        empty = [token for token in free if not self._owned[token]]
        if empty and self._random.random() < 0.5:
            source = self._random.choice(empty)
        others = [token for token in free if token != source]
        if others:
            self._transfer([(span, self._random.choice(others)) for span in list(self._owned[source])])
            self._end(source, self._now + self._random.choice((0, 0, 1, 1000, SECOND)))

    def _replace(self, source: str, _free: list[str]) -> None:
        """A partition announces its successors, hands all its keys to them, and ends, in one instant."""
        started = [self._born(self._now) for _ in range(self._random.choice((1, 2)))]
        self._announce(source, started)
        pieces = list(self._owned[source])
        if len(pieces) < len(started):
            pieces = self._halves(pieces[0])
        self._transfer([(piece, started[number % len(started)]) for number, piece in enumerate(pieces)])
        self._end(source, self._now)

    def _swap(self, source: str, free: list[str]) -> None:
        """Two partitions give keys to each other in one instant."""
        others = [token for token in free if token != source and self._owned[token]]
        if others:
            other = self._random.choice(others)
            pieces = [(piece, other) for piece in self._piece(source)]
            self._transfer(pieces + [(piece, source) for piece in self._piece(other)])

    def _blink(self, source: str, _free: list[str]) -> None:
        """A partition starts and ends, and never owns a key."""
        token = self._born(self._now)
        self._announce(source, [token])
        self._end(token, self._now + self._random.choice((0, 1, 1000)))

    def _born(self, at: int) -> str:
        token = draw_token(self._random)
        self.timelines.partitions[token] = Partition(token, at)
        self._owned[token] = []
        self._touched.add(token)
        return token

    def _announce(self, announcer: str, started: list[str]) -> None:
        for group in groups(self._random, started):
            rank = self._random.choice((-2, 1))
            self.timelines.notices.append(Notice(announcer, rank, PartitionStart(self._now, "", tuple(group))))

    def _end(self, token: str, at: int) -> None:
        at = min(at, self._horizon)
        self.timelines.partitions[token].end = at + 1
        self.timelines.notices.append(Notice(token, 3, PartitionEnd(at, "", token)))
        del self._owned[token]

    def _own(self, span: Span) -> None:
        self._owned[span.token].append(span)
        self.timelines.spans.append(span)

    def _piece(self, token: str) -> list[Span]:
        """Choose one of the partition's spans, whole or a part of it; none if it owns none."""
        if not self._owned[token]:
            return []
        span = self._random.choice(self._owned[token])
        return [self._random.choice(self._halves(span)) if self._random.random() < 0.8 else span]

    def _halves(self, span: Span) -> list[Span]:
        """Cut one of the living spans in two, somewhere; one that is a single place stays whole."""
        if span.high - span.low < 2:
            return [span]
        upper = Span(self._random.randrange(span.low + 1, span.high), span.high, span.token, span.since, span.until)
        span.high = upper.low
        self._own(upper)
        return [span, upper]

    def _transfer(self, pieces: list[tuple[Span, str]]) -> None:
        """Move these spans, each to its destination, and say so on both sides, once per partition."""
        sources: dict[str, list[str]] = {}
        destinations: dict[str, list[str]] = {}
        for span, destination in pieces:
            if span not in self._owned[span.token]:  # it is the same piece, drawn again
                continue
            self._owned[span.token].remove(span)
            at_once = self.timelines.partitions[destination].start == self._now and span.since < self._now
            span.until = self._now if at_once and self._random.random() < 0.5 else self._now + 1
            self._own(Span(span.low, span.high, destination, span.until))
            for told, token, other in (
                (destinations, span.token, destination),
                (sources, destination, span.token),
            ):
                if other not in told.setdefault(token, []):
                    told[token].append(other)
        for token in {**sources, **destinations}:
            into, out = tuple(sources.get(token, ())), tuple(destinations.get(token, ()))
            # Keys that moved out have left their changes of this instant before the event, keys that moved in after it.
            rank = 2 if out else -1
            self.timelines.notices.append(Notice(token, rank, PartitionEvent(self._now, "", token, into, out)))
            self._touched.add(token)


def groups(random: Random, items: Iterable[_T]) -> list[list[_T]]:
    """Cut a sequence into runs at random."""
    cut: list[list[_T]] = []
    for item in items:
        if cut and random.random() < 0.5:
            cut[-1].append(item)
        else:
            cut.append([item])
    return cut
