"""Lists the read functions of a change stream again and again, while it is read.

A placement that is added gets a function. Every record of it is committed after the last list without it, and the
watermark does not pass the timestamp of that list. So the function's initial query starts there, and loses nothing. A
function whose partitions have all ended is asked again in the same way, for as long as it is listed.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from connector.core.health.retries import SPANNER, Cause, RetryLog
from connector.core.partitions import Partition, PartitionGraph
from connector.core.records import INITIAL_TOKEN, function_of, partition_id
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import StreamError, UnreachableError
from connector.log import Log
from connector.reader.placements.listing import FunctionList, FunctionLister
from connector.reader.placements.vanished import judge, past_lists

UNSETTLED = 300.0
"""Seconds after which a list that stays incomplete is an error."""

_PART = "the list of read functions"
"""The part that fails in the log of retries."""

_HINT = "The watermark waits at the last list, and nothing is lost. If a placement is being added, it ends by itself."

_log = Log(__name__)


class FunctionsWatch:
    """Keeps a graph up to date with the list.

    Args:
        lister: reads the list.
        first: the list that was read before reading began.
        interval: nanoseconds between two lists.
    """

    def __init__(self, lister: FunctionLister, first: FunctionList, interval: int) -> None:
        self._lister = lister
        self._interval = interval / SECOND
        self._known = set[str]()
        self._first = first
        self._unsettled_since: float | None = None

    @property
    def functions(self) -> frozenset[str]:
        """The names of the functions that are read."""
        return frozenset(self._known)

    def begin(self, graph: PartitionGraph) -> None:
        """Hands the graph the first list, all of whose functions are in its cut."""
        self._known = {*self._first.functions.values(), *_functions_of(graph)}
        graph.functions.listed(self._first.at)

    async def watch(self, graph: PartitionGraph, changed: Callable[[], None], failing: RetryLog) -> None:
        """Reads the list at intervals until it is cancelled; ``changed`` is called after each.

        Raises:
            PlacementLostError: a function came and went between two lists.
            SpannerCdcError: the list cannot be read, or stays incomplete.
        """
        while True:
            await asyncio.sleep(self._interval)
            asked = time.time_ns()
            try:
                found = await self._lister.read()
                await self._look_back(found, graph)
            except UnreachableError as error:
                _log.warning("the read functions cannot be listed now; the watermark waits", error=str(error))
                cause = Cause("the read functions of the change stream cannot be listed", "", error.message, error.hint)
                self._failed(failing, cause, asked)
                continue
            if not self._is_settled(found):
                self._failed(
                    failing, Cause("the list of read functions is incomplete", "", found.unsettled, _HINT), asked
                )
                continue
            failing.healed(SPANNER, part=_PART)
            self._take(found, graph)
            changed()

    async def _look_back(self, found: FunctionList, graph: PartitionGraph) -> None:
        """Looks for functions that came and went since the last list, if that is long ago.

        One with partitions is read to its end, or is an error. One that was known to have none may have got some.
        """
        since = graph.functions.listed_at
        if since is None or found.unsettled:
            return
        busy = _functions_of(partition for partition in graph if not partition.is_empty)
        lists = await past_lists(self._lister.as_of, since, found.at, {*found.functions.values(), *busy})
        vanished = (replace(one, was_there=one.was_there or one.function in self._known) for one in lists.vanished)
        judge(replace(lists, vanished=tuple(vanished)), since, is_new=False)

    def _failed(self, failing: RetryLog, cause: Cause, asked: int) -> None:
        now, proof = time.time_ns(), round(2 * self._interval * SECOND)
        failing.failed(SPANNER, cause, now, part=_PART, lasted=max(now - asked, 0), proof=proof)

    def _is_settled(self, found: FunctionList) -> bool:
        now = asyncio.get_running_loop().time()
        if not found.unsettled:
            self._unsettled_since = None
            return True
        if self._unsettled_since is None:
            self._unsettled_since = now
            _log.warning("the list of read functions is incomplete; the watermark waits", why=found.unsettled)
        if now - self._unsettled_since > UNSETTLED:
            raise StreamError(
                f"the read functions cannot be listed: {found.unsettled}",
                hint="Nothing was skipped: the next run continues from the last epoch.",
            )
        return False

    def _take(self, found: FunctionList, graph: PartitionGraph) -> None:
        listed = set(found.functions.values())
        alive = _functions_of(partition for partition in graph if partition.end is None)
        for function in sorted(listed - alive):
            initial = partition_id(INITIAL_TOKEN, function)
            if function in self._known:
                graph.functions.has_ended(initial)
                continue
            at = format_rfc3339(found.at)
            _log.info("a placement was added: its read function is read too", function=function, listed_at=at)
            graph.functions.appeared(initial)
        for function in sorted(self._known - listed - alive):
            _log.info("a placement was dropped: its read function has been read to its end", function=function)
        self._known = listed | (self._known & alive)
        graph.functions.listed(found.at)


def _functions_of(partitions: Iterable[Partition]) -> set[str]:
    """The functions that partitions are of."""
    return {function for partition in partitions if (function := function_of(partition.token)) is not None}
