"""Reads a share of a window with the one-process reader, whose end is the window's."""

from collections.abc import Iterator
from dataclasses import dataclass

from connector.core.changes import Changes
from connector.core.windows import Share, ShareReport, Window


@dataclass(frozen=True, slots=True)
class WindowSetup:
    """What all tasks share: which change stream is read, as whom, and where late records go."""

    database: str
    emulator_host: str | None
    endpoint: str | None
    database_role: str | None
    rpc_priority: str
    dialect: str
    change_stream: str
    partition_mode: str
    heartbeat: int
    """Nanoseconds."""
    spool: str
    """Path of the spool, whose folder late/ takes late records."""
    late_records: str
    """source.late_records: stop or dead-letter."""

    def to_json(self) -> bytes: ...

    @classmethod
    def from_json(cls, text: bytes) -> "WindowSetup": ...


def read_share(setup: WindowSetup, window: Window, share: Share) -> Iterator[Changes | ShareReport]:
    """Reads a share to the window's end: its records as they are proven, in commit order, and its report last.

    Each item is at most about 4 MB, unless one commit timestamp has more, and holds whole commit timestamps of this
    share. The guard against incomplete transactions cannot run here. Records name neither share nor partition:
    :func:`connector.core.windows.without_repeats` needs the share alone, and in the MUTABLE_KEY_RANGE mode only.

    A thread runs the reader; what the caller has not taken is bounded, and so is what is read ahead. Closing the iterator
    ends the thread.

    Raises:
        SpannerCdcError: one clear line. Transient errors are retried here, without limit.
    """
    ...
