"""A window, its shares, and what a share's reader reports. Pure; timestamps are Unix nanoseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import msgspec

from connector.core.partitions import CutPartition


class _Document:
    """A value that the driver and its tasks hand to each other as JSON."""

    __slots__ = ()

    def to_json(self) -> str:
        """As a document for :meth:`from_json`."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The value of a document."""
        return msgspec.json.decode(text, type=cls)


@dataclass(frozen=True, slots=True)
class Window(_Document):
    """The records committed in (low, high], which become one epoch; Spanner's clock has passed ``high``."""

    epoch: int
    """The number of the epoch that it becomes."""
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Share(_Document):
    """The part of the cut at a window's ``low`` that one task reads."""

    number: int
    """From 0; of two shares that read the same partition, the one with the lesser number is used."""
    cut: tuple[CutPartition, ...]


@dataclass(frozen=True, slots=True)
class ShareReport(_Document):
    """The report of a share's reader that has read everything up to the window's ``high``."""

    share: int
    cut: tuple[CutPartition, ...]
    """The share's part of the cut at ``high``."""
    followed: tuple[str, ...]
    """The tokens that it discovered and read."""
    finished: tuple[str, ...]
    """The tokens of the share that ended in the window."""
    declined: tuple[CutPartition, ...]
    """The partitions that it discovered and left to the reader of their least parent."""
    least_parents: tuple[str, ...]
    """The least parent of each of ``declined``."""
    bytes_of: Mapping[str, int]
    """The bytes of records that were returned of each partition of ``cut``, by token; none means 0."""
    records: int
    mods: int
    bytes: int
    queries: int
    retries: int
    seconds: float
    ends: Mapping[str, int] = field(default_factory=dict)
    """The latest end of a partition of each read function of a placement, of those that have ended in the window."""
    mutable: bool = False
    """True if the change stream is in the MUTABLE_KEY_RANGE mode, where several shares may read one partition."""
