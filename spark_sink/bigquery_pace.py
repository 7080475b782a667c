"""When the BigQuery sink begins its next micro-batch: what it has spent of its quotas is in the spool.

Spark asks for a micro-batch every trigger; each costs BigQuery calls for every table that has rows, however few. So
epochs gather until :class:`connector.bigquery_quotas.Pacing` says that the next may begin. What was spent is noted
before anything is planned, by each try again, so that neither a restart nor a sink that dies all the time takes more
than its share. What is asked for at an end (``source.end``, a shutdown, AvailableNow) is not held back, but paid for.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from pydantic import BaseModel, ConfigDict, Field

from connector.bigquery_quotas import Pacing, Spent
from connector.consumers import BIGQUERY
from connector.manifest import VERSION
from connector.spool import Spool, to_json
from connector.timestamps import SECOND
from spark_sink.admission import EpochWeight

_PATH = f"consumers/{BIGQUERY}.pace"
_RELEASED = f"consumers/{BIGQUERY}.released"

_LONGEST_WAIT = 600 * SECOND
"""Nanoseconds that a try again waits at most: its rows are due."""


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = VERSION
    paid_until: int = Field(ge=0)
    begun: int = Field(ge=0)


class _Released(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = VERSION
    epoch: int = Field(ge=0)


class Pace:
    """The pace of a spool's BigQuery sink.

    Args:
        spool: remembers what was spent.
        pacing: the rule.
        batch_bytes: bytes of segments that a micro-batch holds at most.
        part_bytes: bytes of segments for which each table takes a call.
        clock: nanoseconds since 1970.
        sleep: waits for so many seconds.

    Raises:
        SpoolError: from every method, where a document is corrupt, or cannot be read or written.
    """

    def __init__(
        self,
        spool: Spool,
        pacing: Pacing,
        *,
        batch_bytes: int,
        part_bytes: int,
        clock: Callable[[], int],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._spool = spool
        self._pacing = pacing
        self._batch_bytes = batch_bytes
        self._part_bytes = part_bytes
        self._clock = clock
        self._sleep = sleep
        self._spent: Spent | None = None
        self._noted_at = self._asked_at = self._released = 0

    def within(self, epochs: Iterable[EpochWeight]) -> list[EpochWeight]:
        """The epochs that a micro-batch has room for, and one more."""
        out: list[EpochWeight] = []
        size = 0
        for epoch in epochs:
            out.append(epoch)
            size += epoch.bytes
            if size > self._batch_bytes:
                break
        return out

    def holds(self, epochs: Sequence[EpochWeight]) -> bool:
        """Whether epochs have to wait for more; those without rows cost nothing, and never do."""
        filled = [epoch for epoch in epochs if epoch.rows]
        if not filled:
            return False
        full = sum(epoch.bytes for epoch in filled) >= self._batch_bytes
        calls = self.calls(filled)
        due = self._pacing.due(self._read(), calls, oldest=filled[0].oldest, full=full)
        return due > self._clock() and epochs[0].epoch > self._last_released()

    def calls(self, epochs: Sequence[EpochWeight]) -> int:
        """How many streams, or load jobs, a micro-batch takes that holds these epochs, or as many of them as fit."""
        tables: set[str] = set()
        size = files = 0
        for epoch in epochs:
            tables |= epoch.tables
            size += epoch.bytes
            files += epoch.files
            if size >= self._batch_bytes:
                break
        return len(tables) * min(files, -(-size // self._part_bytes))

    def spend(self, epochs: Sequence[EpochWeight], *, again: bool = False) -> None:
        """Notes that a micro-batch is begun; one that is tried ``again`` waits until its calls are paid."""
        filled = [epoch for epoch in epochs if epoch.rows]
        if self._pacing.quota is None or not filled:
            return
        calls = self.calls(filled)
        spent = self._read()
        if again:
            due = self._pacing.due(spent, calls, oldest=0, full=True)
            self._sleep(min(max(0, due - self._clock()), _LONGEST_WAIT) / SECOND)
        self._spent = self._pacing.after(spent, calls, self._clock())
        if self._clock() - self._noted_at >= self._spool.storage.rewrite_interval * SECOND:
            document = _Document(paid_until=self._spent.paid_until, begun=self._spent.begun)
            self._spool.storage.replace(_PATH, to_json(document))
            self._noted_at = self._clock()

    def _read(self) -> Spent:
        if self._spent is None:
            try:
                noted = self._spool.document(_PATH, _Document, "it tells nothing of what was spent")
            except FileNotFoundError:
                self._spent = Spent()
            else:
                self._spent = Spent(noted.paid_until, noted.begun)
        return self._spent

    def _last_released(self) -> int:
        if self._clock() - self._asked_at >= self._spool.storage.rewrite_interval * SECOND:
            self._asked_at = self._clock()
            with suppress(FileNotFoundError):
                self._released = self._spool.document(_RELEASED, _Released, "it names no epoch").epoch
        return self._released


def release(spool: Spool) -> int:
    """Lets everything be delivered that is sealed by now, whatever the pace: the service is to end.

    Returns the last epoch that is released.

    Raises:
        SpoolError: it cannot be noted.
    """
    epoch = spool.latest()
    spool.storage.replace(_RELEASED, to_json(_Released(epoch=epoch)))
    return epoch
