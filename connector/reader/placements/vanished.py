"""Finds read functions that were listed for a while and are gone: what they recorded meanwhile cannot be read any more.

A placement may be added, get rows, be emptied and be dropped between two lists, which are far apart where nothing was
read. So the list is read again as of timestamps in between, for as long as the database keeps its versions. A placement
that comes and goes between two of those is not found.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import PlacementLostError, SpannerCdcError, UnreachableError
from connector.log import Log
from connector.reader.placements.first_starts import halved

STEP = 10 * SECOND
"""The time between two lists as of the past."""

_MOST, _AT_ONCE = 1000, 8
"""The most lists of a range, and how many are read at the same time."""

_log = Log(__name__)


ListsAsOf = Callable[[int], Awaitable[Mapping[str, str]]]
"""Lists the placement of each function that was to be read as of a timestamp."""


@dataclass(frozen=True, slots=True)
class Vanished:
    """A function that is gone.

    Attributes:
        function: its name.
        placement: whose it was.
        seen: the last timestamp as of which it was listed.
        gone: a later one as of which it was not.
        was_there: whether it existed already when the range began.
    """

    function: str
    placement: str
    seen: int
    gone: int
    was_there: bool = False


@dataclass(frozen=True, slots=True)
class PastLists:
    """The findings in the lists of a range.

    Attributes:
        since: the first timestamp that was listed; the range's end if none was.
        vanished: the functions that are gone, by name.
        refusal: why earlier lists cannot be read; empty if all were.
    """

    since: int
    vanished: Sequence[Vanished]
    refusal: str = ""


async def past_lists(
    as_of: ListsAsOf, low: int, newest: int, listed: Collection[str], *, end: int | None = None
) -> PastLists:
    """Reads the lists of a range, the newest first.

    Args:
        as_of: reads one.
        low: the first timestamp of the range.
        newest: that of the newest list, which is known.
        listed: the functions of the newest list, and others that are known.
        end: the last timestamp of the range; None for the newest list's.

    Raises:
        UnreachableError: Spanner does not answer now.
    """
    high = newest if end is None else min(newest, end)
    if newest - low <= STEP or high < low:
        return PastLists(low, ())
    first, refusal = await _first_kept(as_of, low, high)
    if first is None:
        return PastLists(high, (), refusal)
    points = [*range(first, high, max(STEP, (high - first) // _MOST)), *([high] if high < newest else [])]
    spans = list(reversed(list(pairwise([*points, newest]))))
    seen = dict[str, Vanished]()
    since = high
    for begin in range(0, len(spans), _AT_ONCE):
        some = spans[begin : begin + _AT_ONCE]
        answers = await asyncio.gather(*(_answer(as_of, at) for at, _ in some))
        for (at, after), answer in zip(some, answers, strict=True):
            if isinstance(answer, SpannerCdcError):  # no longer kept
                return PastLists(since, tuple(seen.values()), answer.message)
            since = at
            for function in answer.keys() - set(listed):
                one = seen.setdefault(function, Vanished(function, answer[function], at, after))
                seen[function] = replace(one, was_there=at == low)
    return PastLists(since, tuple(seen.values()), refusal)


async def _first_kept(as_of: ListsAsOf, low: int, high: int) -> tuple[int | None, str]:
    """The first timestamp of a range whose list is kept, give or take a step, and why earlier ones are not."""
    answer = await _answer(as_of, low)
    if not isinstance(answer, SpannerCdcError):
        return low, ""
    refusal = answer.message

    async def is_kept(at: int) -> bool:
        return not isinstance(await _answer(as_of, at), SpannerCdcError)

    return (await halved(low, high, is_kept, step=STEP) if await is_kept(high) else None), refusal


async def _answer(as_of: ListsAsOf, at: int) -> Mapping[str, str] | SpannerCdcError:
    """The list as of a timestamp, or why it cannot be read."""
    try:
        return await as_of(at)
    except UnreachableError:
        raise
    except SpannerCdcError as error:
        return error


def judge(found: PastLists, low: int, *, is_new: bool, only_warns: bool = False) -> None:
    """Warns of what may be missing, and raises for what is most likely missing.

    A function that was there when the range began and is not in the cut had no partition then, and is a warning. With
    ``is_new`` there is no cut yet, and each function may have had some.

    Args:
        found: the lists.
        low: the first timestamp of the range.
        is_new: whether reading begins with the range.
        only_warns: whether the range was read before, so that what is missing is found by comparison.

    Raises:
        PlacementLostError: a function is gone that may have had records.
    """
    after = format_rfc3339(low)
    if found.refusal:
        _log.warning(
            "earlier lists of read functions are not kept: a placement that was added and dropped in that time is not"
            " noticed",
            since=after,
            until=format_rfc3339(found.since),
            error=found.refusal,
        )
    for one in found.vanished:
        seen, gone = format_rfc3339(one.seen), format_rfc3339(one.gone)
        if only_warns or (one.was_there and not is_new):
            _log.warning(
                "a placement was dropped while nothing was read: what it recorded meanwhile cannot be read any more",
                placement=one.placement,
                function=one.function,
                had_partitions="unknown" if only_warns else "not at first",
                after=after,
                listed_at=seen,
                gone_at=gone,
            )
            continue
        raise PlacementLostError(
            f"placement {one.placement} was dropped before it was read: its read function {one.function} was listed as"
            f" of {seen} and is gone as of {gone}; what it recorded after {after} cannot be read any more",
            hint=f"Nothing was skipped. Choose a source.start from {gone} on.",
            gone=one.gone,
        )
