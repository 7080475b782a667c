"""The choice of the reader that follows a child partition, if several readers share the partitions of a cut. Pure."""

from typing import Protocol

from connector.core.partitions.partition import CutPartition


class Follows(Protocol):
    """Decides about each partition that a graph's partitions announce and that the graph does not have."""

    def __call__(self, announcer: str, child: CutPartition, parents: frozenset[str]) -> bool:
        """True if the graph adds the child.

        Args:
            announcer: the id of the partition that returned the announcement.
            child: what it announces.
            parents: the child's parents with the announcer; empty in the MUTABLE_KEY_RANGE mode.
        """


def follow_all(announcer: str, child: CutPartition, parents: frozenset[str]) -> bool:
    """The rule of a reader that has the whole cut: every child is followed."""
    return True


class LeastParent:
    """The rule of one of several readers: a child is followed by the reader of its least parent, as tokens compare.

    Every parent of a child announces it, so that exactly one reader follows it, without knowing of the others. In the
    MUTABLE_KEY_RANGE mode a partition has no parents: whoever announces it follows it.
    """

    def __init__(self) -> None:
        self.followed: set[str] = set()
        """The tokens that were followed."""
        self._declined: dict[str, tuple[CutPartition, str]] = {}

    def __call__(self, announcer: str, child: CutPartition, parents: frozenset[str]) -> bool:
        """As of :class:`Follows`; notes the decision."""
        least = min(parents, default=announcer)
        if announcer != least:
            self._declined[child.token] = child, least
            return False
        self.followed.add(child.token)
        return True

    @property
    def declined(self) -> list[tuple[CutPartition, str]]:
        """The partitions that were left to others, each with its least parent; sorted by token."""
        return [one for token, one in sorted(self._declined.items()) if token not in self.followed]
