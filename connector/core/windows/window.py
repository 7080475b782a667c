"""A window, its shares, and what a share's reader reports. Pure; timestamps are nanoseconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass

from connector.core.partitions import CutPartition


@dataclass(frozen=True, slots=True)
class Window:
    """The records committed in (low, high], which become one epoch; Spanner's clock has passed ``high``."""

    epoch: int
    """The number of the epoch that it becomes."""
    low: int
    high: int

    def to_json(self) -> bytes: ...

    @classmethod
    def from_json(cls, text: bytes) -> "Window": ...


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the cut at a window's ``low`` that one task reads."""

    number: int
    """From 0; of two shares that read the same partition, the one with the lesser number is used."""
    cut: tuple[CutPartition, ...]

    def to_json(self) -> bytes: ...

    @classmethod
    def from_json(cls, text: bytes) -> "Share": ...


@dataclass(frozen=True, slots=True)
class ShareReport:
    """What the reader of a share reports when it has read everything up to the window's ``high``."""

    share: int
    cut: tuple[CutPartition, ...]
    """The share's part of the cut at ``high``."""
    followed: tuple[str, ...]
    """The tokens that it discovered and read."""
    declined: tuple[CutPartition, ...]
    """Those that it discovered and left to the reader of their least parent, and their least parents."""
    least_parents: tuple[str, ...]
    """The least parent of each of ``declined``."""
    bytes_of: Mapping[str, int]
    """The bytes that were returned of each partition of ``cut``, by token; none means 0."""
    records: int
    mods: int
    bytes: int
    queries: int
    retries: int
    seconds: float

    def to_json(self) -> bytes: ...

    @classmethod
    def from_json(cls, text: bytes) -> "ShareReport": ...
