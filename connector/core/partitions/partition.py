"""A partition: its states, the transitions between them, and its progress. Pure: no clock, no I/O.

The whole life of a partition is in one table, :data:`TRANSITIONS`; a transition that is not in it raises. Timestamps
are integers, Unix nanoseconds.
"""

from dataclasses import dataclass, field
from enum import Enum

NOTHING = -(2**63)
"""Nothing has been proved: a timestamp before every other."""


class PartitionState(Enum):
    """The state of a partition."""

    CREATED = "created"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    FINISHED = "finished"


class PartitionChange(Enum):
    """Events in the life of a partition."""

    PARENTS_FINISHED = "parents finished"
    QUERY_SENT = "query sent"
    QUERY_BROKE = "query broke"
    ENDED_FOR_GOOD = "ended for good"
    REACHED_END = "reached the user's end"


TRANSITIONS: dict[tuple[PartitionState, PartitionChange], PartitionState] = {
    (PartitionState.CREATED, PartitionChange.PARENTS_FINISHED): PartitionState.SCHEDULED,
    (PartitionState.SCHEDULED, PartitionChange.QUERY_SENT): PartitionState.RUNNING,
    (PartitionState.RUNNING, PartitionChange.QUERY_BROKE): PartitionState.SCHEDULED,
    (PartitionState.RUNNING, PartitionChange.ENDED_FOR_GOOD): PartitionState.FINISHED,
    (PartitionState.RUNNING, PartitionChange.REACHED_END): PartitionState.FINISHED,
    (PartitionState.SCHEDULED, PartitionChange.ENDED_FOR_GOOD): PartitionState.FINISHED,
    (PartitionState.SCHEDULED, PartitionChange.REACHED_END): PartitionState.FINISHED,
}
"""Every transition of a partition. A query that breaks leaves it scheduled, to be queried again."""


class IllegalTransitionError(RuntimeError):
    """An event that the transition table does not allow: a bug of this program, never an error of the stream."""


@dataclass(frozen=True, slots=True)
class CutPartition:
    """A partition of a cut: its id (empty for the initial query of a stream's only function) and its start timestamp.

    One that ``is_late`` was announced after the watermark had passed its start. It is read from its start all the same.
    """

    token: str
    start_timestamp: int
    is_late: bool = False


@dataclass(slots=True)
class Partition:
    """A discovered partition.

    ``start`` is its first instant. ``progress`` is the timestamp up to which, inclusive, all its records have been
    received.
    """

    token: str
    start: int
    progress: int
    parents: frozenset[str] = frozenset()
    state: PartitionState = PartitionState.CREATED
    ends_at: int | None = None
    """The first instant after the partition, once a record has announced it: the start of its children, or the instant
    after the timestamp of its end record."""
    children: set[str] = field(default_factory=set)
    ending: bool = False
    """True if the running query has returned a record that ends the partition."""
    proved: int = NOTHING
    """The progress of the running query: it has returned every record at or before this timestamp."""
    moved_at: int = 0
    """The commit timestamp of the last partition event that was counted."""
    complete: bool = False
    """True if its end record has come, after which there are no records."""
    is_late: bool = False
    """True if it was announced after the watermark had passed its start."""
    first: int | None = None
    """Of an initial query: the first start that its function accepts, if it is later than ``start``."""
    is_empty: bool = False
    """True for the initial query of a function that had no partitions when it was asked last."""
    doubted: tuple[int, int] | None = None
    """An end bound that one clean end has proven, and the progress then; see :meth:`confirm_bound`."""

    @property
    def end(self) -> int | None:
        """The first instant after the partition, known once it has no more records."""
        return self.ends_at if self.complete or self.state is PartitionState.FINISHED else None

    def alive_at(self, instant: int) -> bool:
        """True if it covers ``instant``: started by then, and not known to have ended by then."""
        return self.start <= instant and (self.end is None or self.end > instant)

    def change_state(self, event: PartitionChange) -> None:
        """Makes the transition of an event.

        Raises:
            IllegalTransitionError: the table has none; the state is unchanged.
        """
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise IllegalTransitionError(f"a {self.state.value} partition cannot have {event.value}")
        self.state = after

    def ends(self, instant: int) -> None:
        """The running query has announced that children start at ``instant``, where the partition ends."""
        self.ends_at = max(self.ends_at or instant, instant)
        self.ending = True

    def prove(self, timestamp: int) -> None:
        """Every record at or before ``timestamp`` has been received, and the running query has returned it."""
        self.progress = max(self.progress, timestamp)
        self.proved = max(self.proved, timestamp)

    def confirm_bound(self, bound: int) -> None:
        """Takes the end bound of a query that ended with OK, sent after Spanner's clock had passed the bound.

        The bound is proved when a second query in a row, from the progress that the first left and without moving it,
        ends in the same way. A query over the past may end with OK and omit the record that ends its partition. If one
        query were enough, the records of the partition's children up to the bound would be lost. If the second query
        returns anything new, it counts as the first. This costs one more query of a partition, from its last record.
        """
        if self.doubted is not None and self.doubted[1] == self.progress:
            self.prove(min(bound, self.doubted[0]))
        self.doubted = (bound, self.progress)
