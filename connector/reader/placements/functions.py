"""The read functions of a change stream that is read: which there are, and the cut that has a partition of each."""

from collections.abc import Collection, Iterable

from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN, function_of, partition_id
from connector.errors import ConfigurationError, StreamError
from connector.reader.placements.listing import FunctionList, FunctionLister
from connector.reader.placements.vanished import judge, past_lists


class StreamFunctions:
    """The read functions of a change stream with ``per_placement_tvf``.

    Args:
        lister: lists them.
        listed: the list that was read first.

    Attributes:
        lister: as it was given.
        listed: the newest list that was read here.
    """

    def __init__(self, lister: FunctionLister, listed: FunctionList) -> None:
        self.lister = lister
        self.listed = listed
        self._complete_at: int | None = None
        """The timestamp of the last list with which a cut was completed."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the functions that are read."""
        return tuple(self.listed.functions.values())

    async def completed(
        self, cut: Iterable[CutPartition], watermark: int, *, end: int | None = None, only_warns: bool = False
    ) -> tuple[CutPartition, ...]:
        """Reads the list, and completes a cut at a watermark: :func:`completed_cut`.

        Lists since the watermark show whether a placement came and went meanwhile.

        Args:
            cut: at the watermark.
            watermark: Unix nanoseconds.
            end: the last timestamp that is to be read; None for no end.
            only_warns: whether a function that is gone is a warning alone.

        Raises:
            ConfigurationError: the cut is of another function than those of placements.
            PlacementLostError: a function is gone that may have had records.
            StreamError: the list is not complete.
            SpannerCdcError: the list cannot be read.
        """
        at = tuple(cut)
        started = {function for one in at if (function := function_of(one.token)) is not None}
        self.listed = await self.lister.settled(started)
        if self.listed.unsettled:
            why = f"the read functions cannot be listed: {self.listed.unsettled}"
            raise StreamError(why, hint="Nothing was skipped. If a placement is being dropped, start again later.")
        low = watermark if self._complete_at is None else max(watermark, self._complete_at)
        found = await past_lists(self.lister.as_of, low, self.listed.at, {*self.names, *started}, end=end)
        judge(found, low, is_new=any(one.token == INITIAL_TOKEN for one in at), only_warns=only_warns)
        self._complete_at = self.listed.at
        return completed_cut(at, self.names, watermark)


def completed_cut(cut: Iterable[CutPartition], functions: Collection[str], watermark: int) -> tuple[CutPartition, ...]:
    """A cut that has a partition of each function that may have records after the watermark. Pure.

    An initial query of no function, with which a new spool begins and a spool after a gap, stands for that of each. A
    function without a partition in the cut was not listed at the watermark: it begins after it.

    Args:
        cut: at the watermark.
        functions: the names of all functions that are read.
        watermark: Unix nanoseconds.

    Raises:
        ConfigurationError: it has a partition of no function, from a time when the stream had no option.
    """
    out = list[CutPartition]()
    start = watermark + 1
    for at in cut:
        if function_of(at.token) is not None:
            out.append(at)
        elif at.token == INITIAL_TOKEN:
            start = at.start_timestamp
        else:
            why = "the spool is of a time when the change stream had no read function for each placement"
            raise ConfigurationError([f"source.change_stream: {why}: choose a new spool.path and a source.start"])
    started = {function_of(at.token) for at in out}
    return (*out, *(CutPartition(partition_id(INITIAL_TOKEN, one), start) for one in functions if one not in started))
