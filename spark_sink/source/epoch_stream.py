"""What all streams of a spool share: offsets, progress, admission. What a micro-batch holds is the subclass's.

Spark starts one process for each run of a query (the source's process), which asks for offsets and plans
micro-batches; ``read`` runs in executors, on another instance, and knows only what its partition carries. ``stop`` is
never called: the process is killed, so nothing here waits for a goodbye.

The ``start`` that Spark gives to ``latestOffset`` proves that the batch which ended there is done. It is recorded as
the consumer's progress at once, for ``commit`` comes a batch late: a full spool that waited for it would wait for
ever.
"""

import errno
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from connector.core.timestamps import SECOND
from connector.errors import SpoolError, SpoolInUseError
from connector.spool import consumers
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from spark_sink.source.admission import EpochWeight, Group, admitted, by_epoch
from spark_sink.source.copies import begins_at, comparing, contradiction, other_copy
from spark_sink.source.gaps import telling_gaps
from spark_sink.source.in_job import InJobReader
from spark_sink.source.offsets import Offset

NEWS_WAIT = 0.25
"""Seconds that latestOffset waits for news; without it Spark would ask 80 times a second."""

_TAKEOVER = 5.0
"""Seconds that a query waits for the process of its killed predecessor to be gone."""

_PATIENCE = 60.0
"""Seconds of nothing but transient errors after which one is raised."""

_SIGN_OF_LIFE = 30 * SECOND
_TRANSIENT = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.EINTR,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
"""What passes by itself; a full disk too, for recording progress is what lets the daemon free it."""


class ConsumerClaim:
    """A consumer's name, which one process holds at a time, and its progress.

    Args:
        spool: the spool; it need not exist yet.
        name: the consumer's name.
        clock: nanoseconds since the epoch.

    Attributes:
        recorded: the epoch up to which this process has said that the consumer is done; -1 before it has.
    """

    def __init__(self, spool: Spool, name: str, clock: Callable[[], int]) -> None:
        self._spool = spool
        self._name = name
        self._clock = clock
        self._held: ExitStack | None = None
        self.recorded = -1
        self._at = ""
        self._recorded_at = 0

    def hold(self) -> None:
        """Takes the name, until this process ends.

        Raises:
            SpoolInUseError: another query keeps it.
        """
        if self._held is not None:
            return
        deadline = time.monotonic() + _TAKEOVER + self._spool.storage.takeover
        while True:
            held = ExitStack()
            try:
                held.enter_context(consumers.claimed(self._spool, self._name))
            except SpoolInUseError as error:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                raise SpoolInUseError(
                    str(error), hint="Stop that query, or give this one another name with option consumer."
                ) from None
            self._held = held
            return

    def registered(self, *, oldest: bool) -> consumers.Consumer:
        """Where a new query starts: the epoch before the oldest that is kept, from where on all is kept now.

        With ``oldest`` false a consumer that is known starts where it was.
        """
        known = consumers.register(self._spool, self._name, now=self._clock())
        if oldest and known.epoch >= self._spool.floor():
            consumers.record(self._spool, self._name, self._spool.floor() - 1, now=self._clock())
            # Before the floor is read again nothing can be pruned past this consumer.
            known = consumers.record(self._spool, self._name, self._spool.floor() - 1, now=self._clock())
        return known

    def passed(self, epoch: int, at: str) -> None:
        """The consumer is done with everything up to ``epoch``, whose identity is ``at``."""
        now = self._clock()
        since = abs(now - self._recorded_at)
        if self._spool.storage.rewrite_interval * SECOND > since:
            return  # too soon: it is asked again a quarter of a second later
        if epoch > self.recorded or since > _SIGN_OF_LIFE:
            if epoch >= self.recorded:
                self.recorded, self._at = epoch, at
            consumers.record(self._spool, self._name, self.recorded, now=now, at=self._at)
            self._recorded_at = now


class EpochStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Gives the epochs of a spool to one query, in order, each once.

    Args:
        spool: an absolute path.
        consumer: the name under which progress is recorded.
        limit: how much a micro-batch takes where Spark sets no limit.
        in_job: runs the daemon, or None where somebody else does.
        clock: nanoseconds since the epoch.
    """

    starts_at_oldest = True
    """Whether a new query of a known consumer starts at the oldest epoch kept, not where the consumer was."""

    takes_every_epoch = True
    """Whether ``groups`` holds no epoch back, so that a query without a limit need not weigh them."""

    def __init__(
        self,
        spool: str,
        consumer: str,
        *,
        limit: ReadLimit | None = None,
        in_job: InJobReader | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._spool = Spool.at(spool)
        self._consumer = consumer
        self._claim = ConsumerClaim(self._spool, consumer, clock)
        self._limit = limit or ReadAllAvailable()
        self._in_job = in_job
        self._spool_id = ""
        self._compared: set[tuple[int, str]] = set()
        self._target: int | None = None
        self._weights: dict[int, EpochWeight] = {}
        self._troubled_since: float | None = None

    def admits(self, table: str) -> bool:
        """Whether a table's rows count."""
        return bool(table)

    def groups(self, first: int, last: int) -> Iterable[Group]:
        """What of the epochs from ``first`` to ``last`` may be taken now, in order."""
        return by_epoch(self.weights(first, last))

    def begin(self, first: int, last: int) -> str:
        """Makes ready for a micro-batch before Spark knows of it; returns the options that shape what it writes."""
        return ""

    def weights(self, first: int, last: int) -> Iterator[EpochWeight]:
        """What the epochs from ``first`` to ``last`` hold."""
        while first <= last and first in self._weights:
            yield self._weights[first]
            first += 1
        for epoch in self._spool.summaries(first, last):
            weight = self._weights[epoch.epoch] = EpochWeight.of(epoch, self.admits)
            yield weight

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What a micro-batch takes where the trigger says nothing else."""
        return self._limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """All epochs sealed by now; what comes later is for the next run."""
        self._claim.hold()
        self._target = self._spool.latest()

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Before the oldest epoch that is kept; the consumer is registered first, so it stays so."""
        self._claim.hold()
        known = self._claim.registered(oldest=self.starts_at_oldest)
        return Offset(known.epoch, at=known.at).to_json()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """How far the next micro-batch goes; ``start`` if there is nothing new for a quarter of a second."""
        begun = Offset.from_json(start)
        try:
            end = self._next(begun, limit)
            at = self._identity(end) if end > begun.epoch else ""
            pinned = self.begin(begun.epoch + 1, end) if end > begun.epoch else ""
        except (SpoolError, OSError) as error:
            if not self._bears(error):
                raise
            time.sleep(NEWS_WAIT)
            return start
        self._troubled_since = None
        if end <= begun.epoch:
            return start
        self._compared = {one for one in self._compared if one[0] >= begun.epoch} | {(end, at)}
        return Offset(end, self._spool_id, pinned, at).to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """The newest epoch, for the query's progress."""
        return Offset(self._spool.latest(), self._spool_id).to_json() if self._spool_id else None

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch, each with all it needs to know."""
        self._claim.hold()
        begun, ended = Offset.from_json(start), Offset.from_json(end)
        if ended.epoch < begun.epoch:
            raise SpoolError(f"Spark's checkpoint goes back from epoch {begun.epoch} to {ended.epoch}")
        self._identify(begun)
        self._identify(ended)
        epochs = self._spool.manifests(begun.epoch + 1, ended.epoch)
        return self.plan(telling_gaps(comparing(epochs, begun, ended, self._other_copy)), ended.pinned)

    def plan(self, epochs: Iterable[Manifest], pinned: str) -> list[InputPartition]:
        """The tasks for these epochs; none where they are empty."""
        raise NotImplementedError

    def commit(self, end: dict[str, object]) -> None:
        """Records progress; latestOffset has mostly done so before."""
        try:
            done = Offset.from_json(end)
            self._claim.passed(done.epoch, done.at)
        except SpoolError as error:
            if not self._bears(error):
                raise

    def _next(self, begun: Offset, limit: ReadLimit) -> int:
        self._claim.hold()
        if self._in_job is not None:
            self._in_job.ensure()
        self._identify(begun)
        self._claim.passed(begun.epoch, begun.at)
        for passed in [epoch for epoch in self._weights if epoch <= begun.epoch]:
            del self._weights[passed]
        deadline = time.monotonic() + NEWS_WAIT
        seen = begun.epoch
        while True:
            newest = self._spool.latest()
            if newest > seen:
                seen = newest
                end = self._admitted(begun.epoch, newest, limit)
                if end > begun.epoch:
                    return end
            if self._target is not None or time.monotonic() >= deadline:
                return begun.epoch
            if self._in_job is not None:
                self._in_job.ensure()
            time.sleep(self._spool.storage.poll_interval)

    def _admitted(self, begun: int, newest: int, limit: ReadLimit) -> int:
        self._identify(Offset(begun))
        if begun + 1 < self._spool.floor():
            next(self._spool.manifests(begun + 1, begun + 1))  # says that it was pruned
        last = newest if self._target is None else min(newest, self._target)
        if isinstance(limit, ReadAllAvailable) and self.takes_every_epoch:
            return last
        return admitted(self.groups(begun + 1, last), limit) or begun

    def _identify(self, offset: Offset) -> None:
        """Compares the spool with the one that the checkpoint is of."""
        if not self._spool_id and self._spool.latest():  # before its first epoch a spool may still be begun anew
            self._spool_id = self._spool.header().spool_id
        if offset.spool_id and not self._spool_id:
            raise SpoolError(
                f"there are no epochs at {self._spool.path} any more",
                hint="Restore the spool, or start the query anew with a new checkpoint.",
            )
        if offset.spool_id and offset.spool_id != self._spool_id:
            raise SpoolError(
                f"Spark's checkpoint is of spool {offset.spool_id}, but at {self._spool.path} is {self._spool_id}",
                hint="Restore the other, or start the query anew with a new checkpoint.",
            )
        if offset.epoch > self._spool.latest():
            raise self._other_copy(offset, f"it ends with epoch {self._spool.latest()}")
        if offset.at and (offset.epoch, offset.at) not in self._compared:
            if found := contradiction(self._spool, offset.epoch, offset.at):
                raise self._other_copy(offset, found)
            self._compared.add((offset.epoch, offset.at))

    def _identity(self, epoch: int) -> str:
        """What identifies an epoch that is sealed."""
        weight = self._weights.get(epoch)
        if weight is not None and weight.summary is not None:
            return weight.summary.identity
        return next(self._spool.manifests(epoch, epoch)).identity

    def _other_copy(self, offset: Offset, found: str) -> SpoolError:
        return other_copy(self._spool, "Spark's checkpoint", offset, found, self.anew(offset))

    def anew(self, done: Offset) -> str:
        """How the query begins anew where the spool is another copy than the one of ``done``, and what that costs."""
        oldest = self._spool.floor() - 1
        return f"start the query anew with a new checkpoint: {begins_at(self._spool, oldest, done)}"

    def _bears(self, error: Exception) -> bool:
        """Whether an error may pass by itself; an exception out of latestOffset would end the query."""
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in _TRANSIENT:
            return False
        now = time.monotonic()
        self._troubled_since = self._troubled_since or now
        return now - self._troubled_since < _PATIENCE
