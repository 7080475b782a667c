"""A window, its shares, and what a share's reader reports. Pure; timestamps are Unix nanoseconds."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from connector.core.partitions import CutPartition


@dataclass(frozen=True, slots=True)
class Window:
    """The records committed in (low, high], which become one epoch; Spanner's clock has passed ``high``."""

    epoch: int
    """The number of the epoch that it becomes."""
    low: int
    high: int

    def to_json(self) -> str:
        """As a document for :meth:`from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Window":
        """The window of a document."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the cut at a window's ``low`` that one task reads."""

    number: int
    """From 0; of two shares that read the same partition, the one with the lesser number is used."""
    cut: tuple[CutPartition, ...]

    def to_json(self) -> str:
        """As a document for :meth:`from_json`."""
        return json.dumps([self.number, _plain(self.cut)])

    @classmethod
    def from_json(cls, text: str) -> "Share":
        """The share of a document."""
        number, cut = json.loads(text)
        return cls(number, _cut(cut))


@dataclass(frozen=True, slots=True)
class ShareReport:
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

    def to_json(self) -> str:
        """As a document for :meth:`from_json`."""
        document = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps({**document, "cut": _plain(self.cut), "declined": _plain(self.declined)})

    @classmethod
    def from_json(cls, text: str) -> "ShareReport":
        """The report of a document."""
        document: dict[str, Any] = json.loads(text)
        document |= {name: tuple(document[name]) for name in ("followed", "finished", "least_parents")}
        return cls(**document | {name: _cut(document[name]) for name in ("cut", "declined")})


def _plain(cut: Iterable[CutPartition]) -> list[tuple[str, int, bool]]:
    return [(at.token, at.start_timestamp, at.is_late) for at in cut]


def _cut(plain: Iterable[tuple[str, int, bool]]) -> tuple[CutPartition, ...]:
    return tuple(CutPartition(*at) for at in plain)
