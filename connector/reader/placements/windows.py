"""The read functions of a change stream that is read in windows: the driver's side, before a window is dealt out.

The readers of shares know nothing of lists. So the driver lists the functions before each window, whose end is not
after the list. A function that is young or has no partitions is asked here, and is in the cut from its first start on.
One whose last partition ends within a window is asked from that end on, once the window is read: if it has partitions
again, the window is read once more, and ends before them.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import grpc

from connector.core.partitions import CutPartition
from connector.core.records import function_of, is_initial
from connector.errors import DataLostError, StreamGoneError, UnreachableError
from connector.log import Log
from connector.reader.placements.first_starts import FirstStarts
from connector.reader.placements.functions import StreamFunctions
from connector.spanner.errors import classify
from connector.spanner.partition_query import SilentStreamError

_log = Log(__name__)


class WindowFunctions:
    """Completes the cuts of windows.

    Args:
        functions: the functions of the stream.
        starts: finds first starts.
    """

    def __init__(self, functions: StreamFunctions, starts: FirstStarts) -> None:
        self._functions = functions
        self._starts = starts
        self._young: dict[str, CutPartition] = {}
        """The initial queries of functions that start after the last window; they are asked until they are read."""
        self._cut: tuple[CutPartition, ...] = ()

    async def listed(self, cut: Iterable[CutPartition], low: int) -> int:
        """Lists the functions, and completes the cut at ``low``; returns the timestamp of the list.

        Raises:
            SpannerCdcError: the list cannot be read, or is not complete.
        """
        self._cut = await self._functions.completed((*cut, *self._young.values()), low)
        return self._functions.listed.at

    async def cut(self, high: int) -> tuple[CutPartition, ...]:
        """The cut that was completed, without functions that have no record up to ``high``.

        Raises:
            UnreachableError: a function does not answer now.
            SpannerCdcError: a function cannot be read.
        """
        cut, young = list[CutPartition](), dict[str, CutPartition]()
        for at in self._cut:
            function = function_of(at.token)
            if function is None or not is_initial(at.token):
                cut.append(at)
                continue
            with _answering():
                first = await self._first(function, at.start_timestamp, high)
            if first is not None and first <= high:
                cut.append(CutPartition(at.token, first))
            elif first is not None:
                young[at.token] = CutPartition(at.token, first)
        self._young = young
        return tuple(cut)

    async def refilled(self, emptied: Mapping[str, int], high: int) -> int | None:
        """The first timestamp up to ``high`` at which an emptied function has partitions again; None if none has.

        Nothing announces such a partition. So the window has to end before it, and the next one begins with it.

        Args:
            emptied: the functions whose partitions have all ended in the window, with the latest end of each.
            high: the window's.

        Raises:
            UnreachableError: a function does not answer now.
            SpannerCdcError: a function cannot be read.
        """
        with _answering():
            found = [await self._after(function, end, high) for function, end in sorted(emptied.items())]
        return min((first for first in found if first is not None), default=None)

    async def _after(self, function: str, end: int, high: int) -> int | None:
        """The first start from a function's end on with partitions; None also for one that was dropped since."""
        if end > high:
            return None
        try:
            return await self._starts.with_partitions(function, end, high)
        except StreamGoneError:
            _log.info("a placement was dropped: its read function has been read to its end", function=function)
            return None

    async def _first(self, function: str, start: int, high: int) -> int | None:
        if start > high:
            return start
        try:
            if await self._starts.has_partitions(function, start):
                return start
        except DataLostError:
            start = await self._starts.accepted(function, start)
        return start if start > high else await self._starts.with_partitions(function, start, high)


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except (grpc.RpcError, SilentStreamError) as error:
        found = str(classify(error)) if isinstance(error, grpc.RpcError) else str(error)
        raise UnreachableError(f"Spanner does not answer an initial query ({found})") from error
