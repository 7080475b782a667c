"""Draws the partitions of a scripted change stream: when each starts and ends, and which keys it owns.

Keys are hashed to places from 0 to WHOLE. A `Span` says that a partition owns some places for some commit timestamps.
At any timestamp the spans tile all places, so that a key's changes are on one partition at a time. Records about
partitions (`Notice`) are kept apart from data change records, because their order among the changes of the same
timestamp is known only when those are.

In the IMMUTABLE_KEY_RANGE mode a partition owns the same places from its start to its end. In the MUTABLE_KEY_RANGE
mode keys move: if they move at T, their changes up to T are on the source, and those after T on the destination. Only a
destination that starts at T may hold the changes at T.

With placements each partition belongs to one, that of the partition that announces it. The first partitions of a
placement are announced by none: only its function's initial query returns them.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from random import Random
from typing import TypeVar

from connector.core.timestamps import SECOND
from emulator.scenario.history import (
    Child,
    Children,
    Moves,
    Partition,
    PartitionEnd,
    PartitionEvent,
    PartitionMode,
    PartitionStart,
)
from emulator.scenario.instants import instants
from emulator.scenario.placements import Placement, Placements

WHOLE = 1 << 32
"""The number of places."""

_T = TypeVar("_T")
_first = itemgetter(0)

Announcement = Children | PartitionStart | PartitionEnd | PartitionEvent


@dataclass(slots=True)
class Span:
    """A partition's ownership of the places from `low` to `high`, for commit timestamps from `since` to `until`.

    The upper bounds are exclusive; without `until` the ownership does not end.
    """

    low: int
    high: int
    token: str
    since: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A record about partitions, on the partition `token`.

    `rank` orders it among the records of the same timestamp; data change records have the rank 0. If its record
    sequence is empty, the script assigns it.
    """

    token: str
    rank: int
    record: Announcement


@dataclass(slots=True)
class Timelines:
    """Partitions without their records, the spans that they own, and their notices in the order of time."""

    partitions: dict[str, Partition] = field(default_factory=dict)
    placements: tuple[Placement, ...] = ()
    spans: list[Span] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    _instants: list[int] = field(default_factory=list)
    _tilings: dict[int, tuple[list[int], list[str]]] = field(default_factory=dict)

    def owner(self, place: int, at: int) -> str:
        """Returns the token of the partition that holds changes committed at `at` of keys at `place`.

        The timelines must be complete, and `at` not before their first timestamp.
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

    def open_at(self, at: int) -> list[str]:
        """Returns the names of the placements in which rows may be put at that time; of all if none has settled."""
        names = [placement.name for placement in self.placements]
        return [name for name in names if self.settled(name, at)] or names

    def settled(self, placement: str, at: int) -> list[Span]:
        """Returns the spans that partitions of a placement own both at `at` and right after it."""
        return [
            span
            for span in self.spans
            if span.since <= at and (span.until is None or at + 1 < span.until)
            if self.partitions[span.token].placement == placement
        ]

    def marks(self) -> list[int]:
        """Returns the timestamps at which partitions start or end or keys move, each once, in order."""
        return sorted({span.since for span in self.spans} | {notice.record.timestamp for notice in self.notices})


def timelines(
    random: Random,
    mode: PartitionMode,
    origin: int,
    horizon: int,
    *,
    churn: int,
    first_partitions: int,
    placements: Placements | None = None,
) -> Timelines:
    """Draws timelines from `origin` to `horizon`, with `first_partitions` partitions at first and `churn` events.

    Some events share a timestamp, some follow each other within a nanosecond. An event that no partition allows is
    omitted. Each placement has a partition at first; one that cannot be emptied when it should is emptied later.
    """
    stream: _Immutable | _Mutable
    if mode == "IMMUTABLE_KEY_RANGE":
        stream = _Immutable(random, origin, first_partitions)
    else:
        stream = _Mutable(random, origin, horizon, first_partitions, placements)
    for at in instants(random, origin + 1, horizon, churn):
        stream.step(at)
    if isinstance(stream, _Mutable):
        stream.change_placements(horizon)
    stream.timelines.notices.sort(key=lambda notice: (notice.record.timestamp, notice.rank))
    return stream.timelines


def draw_token(random: Random) -> str:
    """Draws a partition token; it does not depend on the partition's parents."""
    return base64.urlsafe_b64encode(random.randbytes(36)).decode()


class _Immutable:
    """Draws the timelines of the IMMUTABLE_KEY_RANGE mode; `_tiling` has the live spans in the order of places."""

    def __init__(self, random: Random, origin: int, first_partitions: int) -> None:
        self.timelines = Timelines()
        self._random = random
        self._tiling = self._start(origin, 0, WHOLE, first_partitions, ())
        self._youngest = 0

    def step(self, at: int) -> None:
        """Splits, merges, moves or mixes neighbouring partitions; often the youngest ones, which then live briefly."""
        random = self._random
        steps = ((1, 2), (1, 2), (1, 3), (1, 1), (2, 1), (2, 1), (3, 1), (2, 2))
        width, children_count = random.choice([step for step in steps if step[0] <= len(self._tiling)])
        place = self._youngest if random.random() < 0.3 else random.randrange(len(self._tiling))
        place = min(place, len(self._tiling) - width)
        replaced = self._tiling[place : place + width]
        if any(span.since == at for span in replaced):  # it would end at the timestamp it starts
            return
        parents = tuple(span.token for span in random.sample(replaced, width))
        children = self._start(at, replaced[0].low, replaced[-1].high, children_count, parents)
        for span in replaced:
            span.until = self.timelines.partitions[span.token].end = at
            self._announce(span.token, at, [Child(child.token, parents) for child in children])
        self._tiling[place : place + width] = children
        self._youngest = place

    def _start(self, at: int, low: int, high: int, count: int, parents: tuple[str, ...]) -> list[Span]:
        bounds = [low, *sorted(self._random.sample(range(low + 1, high), count - 1)), high]
        spans = []
        for lower, upper in pairwise(bounds):
            token = draw_token(self._random)
            self.timelines.partitions[token] = Partition(token, at, parents)
            spans.append(Span(lower, upper, token, at))
        self.timelines.spans += spans
        return spans

    def _announce(self, parent: str, at: int, children: list[Child]) -> None:
        """Announce all children on this parent, in one record or several."""
        for number, group in enumerate(groups(self._random, children)):
            self.timelines.notices.append(Notice(parent, 1, Children(at, f"{number:08d}", tuple(group))))


class _Mutable:
    """Draws the timelines of the MUTABLE_KEY_RANGE mode; `_owned` has the live partitions' tokens and spans."""

    def __init__(
        self, random: Random, origin: int, horizon: int, first_partitions: int, placements: Placements | None
    ) -> None:
        each = placements.each if placements else ()
        self.timelines = Timelines(placements=each)
        self._random = random
        self._horizon = horizon
        self._most = 2 * first_partitions + 2
        self._owned: dict[str, list[Span]] = {}
        self._now = origin
        self._touched: set[str] = set()
        first = [placement.name for placement in each if placement.created < origin]
        self._changes = _changes_of_placements(each, origin)
        count = max(first_partitions, len(first))
        bounds = [0, *sorted(random.sample(range(1, WHOLE), count - 1)), WHOLE]
        for number, (low, high) in enumerate(pairwise(bounds)):
            self._own(Span(low, high, self._start(origin, first[number % len(first)] if first else ""), origin))

    def change_placements(self, upto: int) -> None:
        """Creates and empties the placements that are due by then, each at its time or, if it cannot be, later."""
        while self._changes and self._changes[0][0] <= upto:
            at, placement = self._changes.pop(0)
            self._advance(at)
            if placement.created == at:
                self._start(at, placement.name)
            elif not self._empty(placement):
                placement.emptied = at + 1
                self._changes.append((at + 1, placement))
                self._changes.sort(key=_first)
        for _, placement in self._changes if upto == self._horizon else ():
            placement.emptied = None

    def _empty(self, placement: Placement) -> bool:
        """Moves all keys of a placement away and ends its partitions; False if some just changed."""
        inside = [token for token in self._owned if self._placement(token) == placement.name]
        others = [token for token in self._owned if token not in inside and token not in self._touched]
        if not others or not self._touched.isdisjoint(inside):
            return False
        spans = [span for token in inside for span in self._owned[token]]
        self._transfer([(span, self._random.choice(others)) for span in spans])
        for token in inside:
            self._end(token, self._now + self._random.choice((0, 0, 1, 1000, SECOND)))
        return True

    def _advance(self, at: int) -> None:
        if at != self._now:
            self._now = at
            self._touched = set()

    def step(self, at: int) -> None:
        """Starts and ends partitions and moves keys, except of partitions that changed at this timestamp already."""
        self.change_placements(at)
        self._advance(at)
        free = [token for token in self._owned if token not in self._touched]
        owners = [token for token in free if self._owned[token]]
        if not owners:
            return
        grow = self._merge if len(self._owned) > self._most else self._split
        steps = (grow, grow, self._merge, self._move, self._replace, self._swap, self._blink)
        self._random.choice(steps)(self._random.choice(owners), free)

    def _split(self, source: str, free: list[str]) -> None:
        """Starts one or two partitions, and moves some of the source's keys there, or none yet."""
        started = [self._start(self._now) for _ in range(self._random.choice((1, 1, 2)))]
        self._announce(self._random.choice((source, *free)), started)
        if self._random.random() < 0.8:
            self._transfer([(part, token) for token in started for part in self._part(source)])

    def _move(self, source: str, free: list[str]) -> None:
        """Moves some or all of the source's keys to a live partition, to one without keys if there is one."""
        others = [token for token in free if token != source]
        empty = [token for token in others if not self._owned[token]]
        if others:
            destination = self._random.choice(empty or others)
            self._transfer([(part, destination) for part in self._part(source)])

    def _merge(self, source: str, free: list[str]) -> None:
        """Moves all of the source's keys to others, and ends it at once or a bit later; or ends one without keys."""
        empty = [token for token in free if not self._owned[token]]
        if empty and self._random.random() < 0.5:
            source = self._random.choice(empty)
        others = [token for token in free if token != source]
        if others and not self._is_last(source):
            self._transfer([(span, self._random.choice(others)) for span in list(self._owned[source])])
            self._end(source, self._now + self._random.choice((0, 0, 1, 1000, SECOND)))

    def _replace(self, source: str, _free: list[str]) -> None:
        """Announce a partition's successors, move all its keys to them, and end it, at one timestamp."""
        started = [self._start(self._now) for _ in range(self._random.choice((1, 2)))]
        self._announce(source, started)
        parts = list(self._owned[source])
        if len(parts) < len(started):
            parts = self._halves(parts[0])
        self._transfer([(part, started[number % len(started)]) for number, part in enumerate(parts)])
        self._end(source, self._now)

    def _swap(self, source: str, free: list[str]) -> None:
        """Exchange keys of two partitions at one timestamp."""
        others = [token for token in free if token != source and self._owned[token]]
        if others:
            other = self._random.choice(others)
            parts = [(part, other) for part in self._part(source)]
            self._transfer(parts + [(part, source) for part in self._part(other)])

    def _blink(self, source: str, _free: list[str]) -> None:
        """Starts and ends a partition that never owns a key."""
        token = self._start(self._now)
        self._announce(source, [token])
        self._end(token, self._now + self._random.choice((0, 1, 1000)))

    def _placement(self, token: str) -> str:
        return self.timelines.partitions[token].placement

    def _is_last(self, token: str) -> bool:
        """True if its placement has no other live partition."""
        placement = self._placement(token)
        return bool(placement) and all(self._placement(other) != placement for other in self._owned if other != token)

    def _start(self, at: int, placement: str = "") -> str:
        token = draw_token(self._random)
        self.timelines.partitions[token] = Partition(token, at, placement=placement)
        self._owned[token] = []
        self._touched.add(token)
        return token

    def _announce(self, announcer: str, started: list[str]) -> None:
        for token in started:
            self.timelines.partitions[token].placement = self._placement(announcer)
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

    def _part(self, token: str) -> list[Span]:
        """Chooses one of the partition's spans, whole or a part of it; empty if it owns none."""
        if not self._owned[token]:
            return []
        span = self._random.choice(self._owned[token])
        return [self._random.choice(self._halves(span)) if self._random.random() < 0.8 else span]

    def _halves(self, span: Span) -> list[Span]:
        """Splits a live span in two at a random place; a span of a single place stays whole."""
        if span.high - span.low < 2:
            return [span]
        upper = Span(self._random.randrange(span.low + 1, span.high), span.high, span.token, span.since, span.until)
        span.high = upper.low
        self._own(upper)
        return [span, upper]

    def _transfer(self, parts: list[tuple[Span, str]]) -> None:
        """Moves spans to their destinations, and adds one notice per partition, on both sides."""
        moves = Moves()
        for span, destination in parts:
            if span not in self._owned[span.token]:  # it was drawn twice
                continue
            self._owned[span.token].remove(span)
            at_once = self.timelines.partitions[destination].start == self._now and span.since < self._now
            span.until = self._now if at_once and self._random.random() < 0.5 else self._now + 1
            self._own(Span(span.low, span.high, destination, span.until))
            moves.add(span.token, destination)
        for token in {**moves.into, **moves.out}:
            into, out = tuple(moves.into.get(token, ())), tuple(moves.out.get(token, ()))
            # The changes of keys that moved out come before the event, those of keys that moved in after it.
            rank = 2 if out else -1
            self.timelines.notices.append(Notice(token, rank, PartitionEvent(self._now, "", token, into, out)))
            self._touched.add(token)


def _changes_of_placements(each: Iterable[Placement], origin: int) -> list[tuple[int, Placement]]:
    """Returns when placements are created and emptied after the origin, in the order of time."""
    created = [(placement.created, placement) for placement in each if placement.created > origin]
    emptied = [(placement.emptied, placement) for placement in each if placement.emptied is not None]
    return sorted([*created, *emptied], key=_first)


def groups(random: Random, items: Iterable[_T]) -> list[list[_T]]:
    """Splits a sequence into consecutive groups at random."""
    cut: list[list[_T]] = []
    for item in items:
        if cut and random.random() < 0.5:
            cut[-1].append(item)
        else:
            cut.append([item])
    return cut
