"""Decides when the BigQuery sink starts its next micro-batch; the spool records what it has spent of its quotas.

Spark requests a micro-batch at every trigger, and each costs BigQuery calls for every table that has rows, however few.
So epochs gather until :class:`spark_sink.sinks.bigquery.pacing.quotas.Pacing` allows the next. The calls of each
attempt are recorded before it is planned, so that neither a restart nor a sink that keeps failing exceeds its share.
What is delivered at an end (``source.end``, a shutdown, AvailableNow) is not held back, but counted.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import Field

from connector.core.timestamps import SECOND
from connector.spool.consumers import LOADED, PACE, RELEASED
from connector.spool.lifecycle import state_of
from connector.spool.manifest import Document
from connector.spool.reading import Spool, to_json
from connector.spool.summaries import held_bytes
from spark_sink.sinks.bigquery.config import CONSUMER
from spark_sink.sinks.bigquery.pacing.quotas import Pacing, Spent
from spark_sink.sources.changes.admission import EpochWeight, packed, up_to_change

_LONGEST_WAIT = 600 * SECOND
"""Nanoseconds that a retry waits at most, because its rows are due."""

_RELEASE_CHECK = 1.0
"""Seconds between two checks of a waiting retry whether the service is to end."""


class _Document(Document):
    """The quota spent so far; ``calls`` are those of the micro-batch from epoch ``first`` on, or 0."""

    paid_until: int = Field(ge=0)
    begun: int = Field(ge=0)
    first: int = Field(default=0, ge=0)
    calls: int = Field(default=0, ge=0)


class _Released(Document):
    """Everything up to an epoch is to be delivered; ``at`` distinguishes one such request from another."""

    epoch: int = Field(ge=0)
    at: int = 0


class _Loaded(Document):
    """The number of loads of the micro-batch from epoch ``first`` on."""

    first: int = Field(ge=1)
    loads: int = Field(ge=0)


@dataclass(frozen=True, slots=True)
class Gathered:
    """The epochs that fit a micro-batch, and one more; ``full`` is whether waiting would make it no larger.

    ``held`` are the bytes that undelivered epochs occupy in the spool, as far as they were looked at.
    """

    epochs: Sequence[EpochWeight]
    full: bool
    held: int = 0


class Pace:
    """The pace of a spool's BigQuery sink.

    Args:
        spool: records what was spent.
        pacing: the rule.
        batch_bytes: the most bytes of segments in a micro-batch.
        part_bytes: bytes of segments for which each table takes a call.
        most_held: bytes that undelivered epochs may hold in the spool, with their manifests and cuts.
        clock: nanoseconds since 1970.
        sleep: waits for so many seconds.
        name: the sink's.

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
        most_held: int,
        clock: Callable[[], int],
        sleep: Callable[[float], None] = time.sleep,
        name: str = CONSUMER,
    ) -> None:
        self._name = name
        self._spool = spool
        self._pacing = pacing
        self._batch_bytes = batch_bytes
        self._part_bytes = part_bytes
        self._most_held = most_held
        self._clock = clock
        self._sleep = sleep
        self._known: _Document | None = None
        self._saved_at = self._read_at = self._released = self._looked_at = self._daemons_bytes = 0

    def gathered(self, undelivered: Iterable[EpochWeight], *, ended: bool = False) -> Gathered:
        """The next micro-batch of these epochs, which ends before a schema change.

        It is full if it holds as much as one may, or if no epoch can follow these (``ended``). It is also full if a
        schema changes, because later epochs cannot join it, and if the undelivered epochs fill the spool, because the
        daemon would read no more.
        """
        seen: list[EpochWeight] = []

        def looked_at() -> Iterator[EpochWeight]:
            for epoch in undelivered:
                seen.append(epoch)
                yield epoch

        epochs: list[EpochWeight] = []
        size = 0
        for epoch in up_to_change(looked_at()):
            epochs.append(epoch)
            size += epoch.bytes
            if size > self._batch_bytes:
                break
        changes = len(epochs) < len(seen)
        held = held_bytes(epoch.summary for epoch in seen if epoch.summary is not None)
        return Gathered(epochs, ended or changes or size >= self._batch_bytes or held >= self._most_held, held)

    def holds(self, gathered: Gathered) -> bool:
        """True if epochs have to wait for more; those without rows cost nothing and never wait."""
        filled = [epoch for epoch in gathered.epochs if epoch.rows]
        if not filled:
            return False
        spent, calls = self._spent(), self.calls(filled)
        full = gathered.full or self._fills_the_daemons_spool(gathered.held)
        due = self._pacing.due(spent, calls, oldest=filled[0].oldest, full=full)
        return due > self._clock() and gathered.epochs[0].epoch > self._last_released()

    def _fills_the_daemons_spool(self, held: int) -> bool:
        """True if epochs would fill the spool by the daemon's own ``spool.max_bytes``: another configuration's."""
        if abs(self._clock() - self._looked_at) >= max(self._spool.storage.rewrite_interval, _RELEASE_CHECK) * SECOND:
            self._looked_at, self._daemons_bytes = self._clock(), state_of(self._spool).max_bytes
        return self._daemons_bytes > 0 and held >= self._daemons_bytes // 2

    def calls(self, epochs: Sequence[EpochWeight]) -> int:
        """The number of streams, or of load jobs, of a micro-batch of these epochs, or of as many of them as fit.

        Each part of a table takes one. Further loads of a part are counted afterwards (:func:`loaded`).
        """
        tables: set[str] = set()
        sizes: list[int] = []
        size = 0
        for epoch in epochs:
            tables |= epoch.tables
            size += epoch.bytes
            sizes += [-(-epoch.bytes // epoch.files)] * epoch.files if epoch.files else []
            if size >= self._batch_bytes:
                break
        return len(tables) * len(packed(sizes, self._part_bytes))

    def spend(self, epochs: Sequence[EpochWeight], *, again: bool = False) -> None:
        """Records that a micro-batch starts; a retry (``again``) waits until the quota allows its calls.

        It stops waiting once the service is to end (:func:`release`).
        """
        filled = [epoch for epoch in epochs if epoch.rows]
        if self._pacing.quota is None or not filled:
            return
        calls = self.calls(filled)
        spent = self._spent()
        if again:
            self._wait(self._pacing.due(spent, calls, oldest=0, full=True) - self._clock())
        self._keep(self._pacing.after(spent, calls, self._clock()), filled[0].epoch, calls)
        self._save()

    def _spent(self) -> Spent:
        """The quota spent by now, including all loads of the last micro-batch."""
        known, now = self._read(), self._clock()
        saved = Spent(known.paid_until, known.begun)
        spent = self._pacing.believed(saved, now)
        was_fast = spent != saved
        if known.first:
            loaded = self._spool.find(_loaded_by(self._name), _Loaded, "it names no micro-batch")
            if loaded is not None:
                more = max(0, loaded.loads - known.calls) if loaded.first == known.first else 0
                spent = self._pacing.with_more(spent, more, now)
        self._keep(spent)
        if was_fast:  # otherwise each restart would move it again
            self._save()
        return spent

    def _keep(self, spent: Spent, first: int = 0, calls: int = 0) -> None:
        self._known = _Document(
            paid_until=max(0, spent.paid_until), begun=max(0, spent.started), first=first, calls=calls
        )

    def _save(self) -> None:
        if abs(self._clock() - self._saved_at) >= self._spool.storage.rewrite_interval * SECOND:
            self._spool.storage.replace(f"consumers/{self._name}{PACE}", to_json(self._read()))
            self._saved_at = self._clock()

    def _read(self) -> _Document:
        if self._known is None:
            path, lack = f"consumers/{self._name}{PACE}", "it does not record what was spent"
            self._known = self._spool.find(path, _Document, lack) or _Document(paid_until=0, begun=0)
        return self._known

    def _wait(self, span: int) -> None:
        seconds = min(span, _LONGEST_WAIT) / SECOND
        before = self._release() if seconds > 0 else None
        while seconds > 0 and self._release() == before:
            self._sleep(min(seconds, _RELEASE_CHECK))
            seconds -= _RELEASE_CHECK

    def _last_released(self) -> int:
        if abs(self._clock() - self._read_at) >= self._spool.storage.rewrite_interval * SECOND:
            self._read_at = self._clock()
            self._released = self._release().epoch
        return self._released

    def _release(self) -> _Released:
        return self._spool.find(_released_by(self._name), _Released, "it names no epoch") or _Released(epoch=0)


def _released_by(name: str) -> str:
    return f"consumers/{name}{RELEASED}"


def _loaded_by(name: str) -> str:
    return f"consumers/{name}{LOADED}"


def release(spool: Spool, *, name: str = CONSUMER) -> int:
    """Has everything delivered that is sealed by now, whatever the pace, because the service is to end.

    Returns the last epoch that is released.

    Raises:
        SpoolError: it cannot be recorded.
    """
    epoch = spool.latest()
    spool.storage.replace(_released_by(name), to_json(_Released(epoch=epoch, at=time.time_ns())))
    return epoch


def loaded(spool: Spool, first: int, loads: int, *, name: str = CONSUMER) -> None:
    """Records the number of loads of the micro-batch from epoch ``first`` on; large tables take several.

    Raises:
        SpoolError: it cannot be recorded.
    """
    spool.storage.replace(_loaded_by(name), to_json(_Loaded(first=first, loads=loads)))
