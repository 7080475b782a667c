"""Checks a reader against the model of a change stream: its schedule, the starts of its queries, and its cuts."""

from collections.abc import Collection

from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN, DataChangeRecord
from tests.property.reading.change_stream import ChangeStream


def check(condition: object, message: str) -> None:
    """Checks an invariant.

    Raises:
        AssertionError: it does not hold.
    """
    if not condition:
        raise AssertionError(message)


class HistoryChecks:
    """Checks against one change stream."""

    def __init__(self, stream: ChangeStream) -> None:
        self.stream = stream

    def check_scheduled(self, token: str, finished: Collection[str], began_at: int) -> None:
        """Checks that a partition may be scheduled, in a process that began at the watermark ``began_at``."""
        check(self._may_be_scheduled_again(token, finished), "a partition that has finished is scheduled again")
        self._check_parents(token, finished, began_at)

    def _check_parents(self, token: str, finished: Collection[str], began_at: int) -> None:
        if token == INITIAL_TOKEN:
            return
        for name in self.stream.partitions[token].parents:
            parent = self.stream.partitions[name]
            assert parent.end is not None
            if parent.start == parent.end or parent.end <= self.stream.first:
                continue  # it has no records, or none that are read
            done = name in finished or parent.end <= began_at + 1
            check(done, f"{token} is scheduled before its parent {name} has finished")

    def _may_be_scheduled_again(self, token: str, finished: Collection[str]) -> bool:
        """An empty parent may be discovered after its child was read and forgotten; all of it is dropped then."""
        if token not in finished:
            return True
        parents = [self.stream.partitions[name] for name in self.stream.partitions[token].parents]
        return any(parent.start == parent.end for parent in parents)

    def check_query_start(self, token: str, start: int, held: Collection[DataChangeRecord], sealed: int) -> None:
        """Checks that a query from ``start`` on misses no record that is neither held nor sealed."""
        if token == INITIAL_TOKEN:
            check(start >= self.stream.start, "the initial query begins before the start")
            return
        for record in self.stream.by_token[token]:
            if sealed < record.commit_timestamp < start and record.commit_timestamp >= self.stream.first:
                check(record in held, f"{token} is queried from after a record that was not received")

    def check_cut(self, cut: list[CutPartition], watermark: int) -> None:
        """Checks that the cut at a watermark holds or leads to every partition that is alive after it."""
        tokens = {at.token for at in cut}
        check(len(tokens) == len(cut) > 0, "a cut is empty, or names a partition twice")
        if INITIAL_TOKEN in tokens:
            check(len(tokens) == 1, "the initial query and a partition that it returns are both in the cut")
        else:
            self._check_cut_tokens(tokens, watermark)

    def _check_cut_tokens(self, tokens: set[str], watermark: int) -> None:
        for token in tokens:
            partition = self.stream.partitions[token]
            check(not tokens & partition.parents, "a partition and its parent are both in the cut")
            check(partition.start <= watermark + 1, "a cut holds a partition of the future")
            check(partition.end is None or partition.end > watermark, "a cut holds a partition of the past")
        for partition in self.stream.partitions.values():
            if partition.covers(watermark + 1):
                check(self._reached(partition.token, tokens), f"{partition.token} is not reached from the cut")

    def _reached(self, token: str, tokens: set[str]) -> bool:
        if token in tokens:
            return True
        return any(self._reached(parent, tokens) for parent in self.stream.partitions[token].parents)


class MutableHistoryChecks(HistoryChecks):
    """Checks against a change stream of the MUTABLE_KEY_RANGE mode, in which no partition waits for another."""

    def _check_parents(self, token: str, finished: Collection[str], began_at: int) -> None:
        """Only partitions that the initial query returns wait, for that query."""

    def _may_be_scheduled_again(self, token: str, finished: Collection[str]) -> bool:
        return token not in finished

    def _check_cut_tokens(self, tokens: set[str], watermark: int) -> None:
        for token in tokens:
            check(self.stream.partitions[token].covers(watermark + 1), "a cut holds a partition that is not alive")
        for partition in self.stream.partitions.values():
            if partition.covers(watermark + 1):
                reached = self._reached_at(partition.token, tokens, watermark)
                check(reached, f"{partition.token} is not reached from the cut")

    def _reached_at(self, token: str, tokens: set[str], watermark: int) -> bool:
        """A partition that starts at the first instant after the cut is announced again by one that is reached."""
        partition = self.stream.partitions[token]
        starts_now = partition.start == watermark + 1
        return token in tokens or (
            starts_now and any(self._reached_at(announcer, tokens, watermark) for announcer in partition.parents)
        )
