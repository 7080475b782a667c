"""Chooses the spans of commit time that an audit reads: all but the gaps, or whole minutes drawn by hash. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b

from connector.core.timestamps import MINUTE

_EVERYTHING = 1 << 64
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*%")


@dataclass(frozen=True, slots=True)
class CommitSpan:
    """Commit timestamps from ``start`` to ``end``, both inclusive, in nanoseconds since 1970."""

    start: int
    end: int


def parse_share(text: str) -> int:
    """The share of a text such as ``10%``, in parts of 2**64.

    Raises:
        ValueError: it is not a valid share.
    """
    match = _PERCENT.fullmatch(text.strip())
    share = int(Decimal(match[1]) * _EVERYTHING / 100) if match else 0
    if not 0 < share <= _EVERYTHING:
        raise ValueError(f"{text!r} is not a valid share: write 10% or 0.5%, up to 100%")
    return share


def without(spans: Iterable[CommitSpan], low: int, high: int) -> Iterator[CommitSpan]:
    """The spans without what was committed in (low, high]."""
    for span in spans:
        if span.end <= low or span.start > high:
            yield span
            continue
        if span.start <= low:
            yield CommitSpan(span.start, low)
        if span.end > high:
            yield CommitSpan(high + 1, span.end)


def sampled(spans: Iterable[CommitSpan], share: int, seed: str) -> list[CommitSpan]:
    """The minutes of the spans that are drawn; neighbours are one span.

    The drawing of a minute depends on ``seed`` and on the minute alone, so that equal audits read the same. If none
    is drawn, the one that would be drawn first is.

    Args:
        spans: ascending, and apart from each other.
        share: how many are drawn, in parts of 2**64.
        seed: any text.
    """
    drawn: list[CommitSpan] = []
    nearest: tuple[int, CommitSpan] | None = None
    for one in _minutes(spans):
        rank = _rank(one, seed)
        if nearest is None or rank < nearest[0]:
            nearest = rank, one
        if rank >= share:
            continue
        if drawn and drawn[-1].end + 1 == one.start:
            drawn[-1] = CommitSpan(drawn[-1].start, one.end)
        else:
            drawn.append(one)
    return drawn or ([nearest[1]] if nearest else [])


def _minutes(spans: Iterable[CommitSpan]) -> Iterator[CommitSpan]:
    for span in spans:
        for minute in range(span.start - span.start % MINUTE, span.end + 1, MINUTE):
            yield CommitSpan(max(minute, span.start), min(minute + MINUTE - 1, span.end))


def _rank(minute: CommitSpan, seed: str) -> int:
    return int.from_bytes(blake2b(f"{seed}/{minute.start // MINUTE}".encode(), digest_size=8).digest())
