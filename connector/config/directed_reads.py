"""The replicas that serve reads (https://cloud.google.com/spanner/docs/directed-reads).

Spanner takes them with read-only transactions, and so with everything that is read here: change streams, snapshots and
rows that are completed.
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict

_MOST = 10
"""Replicas that Spanner takes in a list."""


@dataclass(frozen=True, slots=True)
class ReplicaSelection:
    """Replicas by their location, their type, or both.

    Attributes:
        location: of the replicas, such as ``us-east1``, or ``leader`` or ``non-leader``; empty for any.
        type: of the replicas; None for any.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    location: str = ""
    type: Literal["READ_ONLY", "READ_WRITE"] | None = None

    def __post_init__(self) -> None:
        if not self.location and self.type is None:
            raise ValueError("name a location, a type (READ_ONLY or READ_WRITE), or both")


@dataclass(frozen=True, slots=True)
class DirectedReads:
    """The replicas that may serve reads, in the order of preference, or those that must not.

    Attributes:
        include: the replicas that may; empty if ``exclude`` names some.
        exclude: the replicas that must not.
        auto_failover_disabled: with ``include``: whether a read fails where none of them is healthy, instead of being
            served by another one.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    include: tuple[ReplicaSelection, ...] = ()
    exclude: tuple[ReplicaSelection, ...] = ()
    auto_failover_disabled: bool = False

    def __post_init__(self) -> None:
        if bool(self.include) == bool(self.exclude):
            raise ValueError("name replicas either in include or in exclude")
        if len(self.include) + len(self.exclude) > _MOST:
            raise ValueError(f"Spanner takes at most {_MOST} replicas")
        if self.exclude and self.auto_failover_disabled:
            raise ValueError("auto_failover_disabled is for include")
