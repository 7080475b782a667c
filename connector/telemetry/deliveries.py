"""From commit to destination: what sinks report, joined with the commit timestamps of the epochs they delivered.

A sink is a process of its own, which knows when a micro-batch was delivered; this process has sealed the epochs, and
knows when their mods were committed. Neither reads anything again for it. Epochs that another process has sealed are
not counted.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from connector.core.timestamps import SECOND
from connector.spool.sink_report import NOTHING, SinkReport
from connector.telemetry.latency import LatencyHistogram

_EPOCHS = 4096
"""Sealed epochs that are kept; of a sink that is further behind, the oldest are not counted."""

_POINTS = 64
"""Commit timestamps that are kept of an epoch, so that its size does not matter."""

Integers = npt.NDArray[np.int64]


class _Commits(NamedTuple):
    epoch: int
    first: int
    timestamps: Integers
    mods: Integers
    bytes: int


@dataclass(slots=True)
class SinkProgress:
    """The progress of a sink.

    Attributes:
        report: its newest report: micro-batches with events, since the sink first ran on this spool.
        bytes: bytes of memory of the records in the epochs, of those that this process has sealed.
        latency: from a mod's commit until its micro-batch was delivered, of the same epochs.
    """

    report: SinkReport = NOTHING
    bytes: int = 0
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)


class Deliveries:
    """Sealed epochs, and how sinks deliver them.

    Attributes:
        sinks: the progress of each sink that has delivered, by its name.
        forgotten: the newest epoch of those that are no longer kept; 0 if all are.
    """

    def __init__(self) -> None:
        self.sinks: dict[str, SinkProgress] = {}
        self.forgotten = 0
        self._commits: deque[_Commits] = deque(maxlen=_EPOCHS)

    def sealed(self, epoch: int, timestamps: Integers, mods: Integers, size: int) -> None:
        """An epoch was sealed.

        Args:
            epoch: its number.
            timestamps: commit timestamps of its records, in nanoseconds since 1970, in their order.
            mods: how many mods each record has.
            size: the records' bytes of memory.
        """
        first = int(timestamps[0])
        if len(timestamps) > _POINTS:
            bounds = np.linspace(0, len(timestamps), _POINTS + 1).astype(np.int64)
            timestamps, mods = timestamps[(bounds[:-1] + bounds[1:]) // 2], np.add.reduceat(mods, bounds[:-1])
        if len(self._commits) == _EPOCHS:
            self.forgotten = self._commits[0].epoch
        self._commits.append(_Commits(epoch, first, timestamps.copy(), mods.copy(), size))

    def first_after(self, epoch: int) -> int | None:
        """The first commit timestamp after an epoch, of the epochs that are kept; None if nothing was committed."""
        return next((one.first for one in self._commits.copy() if one.epoch > epoch), None)

    def reported(self, reports: Mapping[str, SinkReport]) -> None:
        """Takes the newest reports of the sinks, by their names."""
        for name, report in reports.items():
            if report.batches:
                self._reported(self.sinks.setdefault(name, SinkProgress()), report)

    def _reported(self, sink: SinkProgress, report: SinkReport) -> None:
        for commits in self._commits:
            if sink.report.last < commits.epoch <= report.last:
                sink.latency.observe((report.delivered_at - commits.timestamps) / SECOND, commits.mods)
                sink.bytes += commits.bytes
        sink.report = report
