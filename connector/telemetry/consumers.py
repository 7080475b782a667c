"""The consumers of a spool, as the status server reports them; read from the spool every few seconds."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from connector.core.health.alarms import AWAY, RefusedDaemon
from connector.core.health.retries import Retry
from connector.core.late_records import LateReport
from connector.errors import SpoolError
from connector.spool.backfill.completeness import incomplete_tables
from connector.spool.backfill.records import backfills, unfinished_names
from connector.spool.consumers import Consumer, consumers, is_stray
from connector.spool.destinations import destination_of
from connector.spool.late_store import late_report
from connector.spool.reading import Spool
from connector.spool.second_daemon import refused_daemon
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.retrying import Heard, retries_of_others


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """A consumer, the last epoch that it is done with, and that epoch's watermark; 0 if it is not known.

    ``at`` is the identity of that epoch; empty if it is not known.

    ``recorded`` is when it recorded that, in Unix nanoseconds; 0 if it is not known. ``destination`` is where a sink
    delivers; empty if it is not known. ``incomplete`` are the tables that lack what was committed before the sink
    started, each with that timestamp. ``is_stray`` says that its epoch is of another copy of the spool.
    """

    name: str
    epoch: int
    watermark: int
    destination: str = ""
    incomplete: Mapping[str, int] = field(default_factory=dict)
    recorded: int = 0
    at: str = ""
    is_stray: bool = False


def delivered(one: ConsumerState, metrics: ReaderMetrics) -> int:
    """The timestamp up to which all that was committed is delivered to a consumer; 0 while it is not known."""
    if one.epoch < max(metrics.first_own_epoch - 1, metrics.deliveries.forgotten):
        return one.watermark  # what the epochs after it hold is not known here
    first = metrics.deliveries.first_after(one.epoch)
    return metrics.spooled if first is None else first - 1


class ConsumerStates:
    """The consumers of a spool.

    Attributes:
        known: those that :meth:`read` found last.
        retries: what their processes had failed at for long then, and retry.
        refused: the second daemon that was refused last.
        missing: the late records and incomplete transactions of the spool.
        unfinished: the backfills that are not done, while a consumer records nothing.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._heard = Heard()
        self._complete: set[str] = set()
        self.known: tuple[ConsumerState, ...] = ()
        self.retries: tuple[Retry, ...] = ()
        self.refused: RefusedDaemon | None = None
        self.missing = LateReport()
        self.unfinished: Sequence[str] = ()

    def read(self) -> None:
        """Reads the consumers; where the spool cannot be read, those known before remain."""
        with suppress(SpoolError, OSError):
            files = self._spool.storage.list("consumers")
            self.missing = late_report(self._spool)
            self.refused = refused_daemon(self._spool, files)
            self.retries = tuple(retries_of_others(self._spool, time.time_ns(), files, tidy=True, heard=self._heard))
            before = {(state.name, state.epoch, state.at): state for state in self.known if state.watermark}
            self.known = tuple(
                replace(
                    before.get((one.consumer, one.epoch, one.at)) or self._state(one),
                    incomplete=self._incomplete(one.consumer),
                    recorded=one.updated,
                )
                for one in consumers(self._spool, files)
            )
            is_away = any(time.time_ns() - one.recorded > AWAY for one in self.known)
            self.unfinished = unfinished_names(backfills(self._spool)) if is_away else ()
            self._complete &= {one.name for one in self.known}

    def _state(self, one: Consumer) -> ConsumerState:
        name = one.consumer
        destination = next((state.destination for state in self.known if state.name == name), "")
        watermark, strays = self._at(one)
        return ConsumerState(
            name, one.epoch, watermark, destination or self._destination(name), at=one.at, is_stray=strays
        )

    def _incomplete(self, name: str) -> Mapping[str, int]:
        """The tables that are incomplete before its start; of a consumer without any, the spool is not asked again."""
        if name in self._complete:
            return {}
        found = incomplete_tables(self._spool, name)
        if not found:
            self._complete.add(name)
        return found

    def _destination(self, name: str) -> str:
        with suppress(SpoolError, OSError):
            found = destination_of(self._spool, name)
            return str(found) if found else ""
        return ""

    def _at(self, one: Consumer) -> tuple[int, bool]:
        """The watermark of a consumer's epoch, and whether that is of another copy.

        That of the slowest consumer is pruned, and the next one begins there.
        """
        with suppress(SpoolError, OSError):
            try:
                found = self._spool.manifest(one.epoch)
            except FileNotFoundError:
                watermark = self._low(max(one.epoch + 1, self._spool.floor()))  # a consumer that advances is read late
                return watermark, not watermark and is_stray(one, self._spool.latest(), "")
            return found.watermark_high, is_stray(one, found.epoch, found.identity)
        return 0, False

    def _low(self, epoch: int) -> int:
        try:
            return self._spool.manifest(epoch).watermark_low
        except FileNotFoundError:
            return self._spool.header().start - 1 if epoch == 1 else 0
