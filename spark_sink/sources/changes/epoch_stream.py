"""The base of all streaming sources that read a spool: offsets, progress, admission. Subclasses plan the tasks.

Spark starts a Python process for each run of a query, which requests offsets and plans micro-batches. ``read`` runs in
executors, on another instance, and has only the data in its partition. Spark does not call ``stop``: it kills the
process, so nothing here depends on an orderly end.

The ``start`` that Spark passes to ``latestOffset`` proves that the micro-batch before it is done. It is recorded as the
consumer's progress at once, because Spark calls ``commit`` one micro-batch late. A full spool, whose epochs are pruned
by that progress, would never have room for the next micro-batch.

PySpark 4.0 and 4.1 pass neither ``start`` nor the trigger's limit. The start is the end that ``latestOffset`` returned
before, because Spark asks again only when that micro-batch is done. After a restart it is the end that Spark passes to
``partitions`` before anything else. The limit is the option's.

With the reader inside the job, ``Trigger.AvailableNow`` and ``Trigger.Once`` mean everything up to Spanner's clock at
the start of the run: ``latestOffset`` waits for the reader instead of saying that there is no news, which would end the
run. See :mod:`spark_sink.sources.changes.in_job` for how long it waits.
"""

import errno
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from connector import log
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import SpoolError, SpoolInUseError
from connector.spool import consumers
from connector.spool.manifest import Manifest, watermark_of
from connector.spool.reading import Spool
from spark_sink.sources.changes.admission import EpochWeight, Group, admitted, by_epoch
from spark_sink.sources.changes.gap_warnings import warning_of_gaps
from spark_sink.sources.changes.in_job import InJobReader, reads_until_now, sealed_until_now
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.read_limits import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from spark_sink.sources.changes.spool_copies import begins_at, contradiction, other_copy, verified

NEWS_WAIT = 0.25
"""Seconds that latestOffset waits for a new epoch; without it Spark would call it 80 times a second."""

WEIGHED_EPOCHS = 20_000
"""Epochs after the position that are weighed for a micro-batch: a spool may keep a million, and each takes a kilobyte.

A minute has at most some hundred, so that a file's minute is always among them.
"""

_TAKEOVER = 5.0
"""Seconds that a query waits for the killed process of its previous run to end."""

_PATIENCE = 60.0
"""Seconds of uninterrupted transient errors after which the error is raised."""

_NO_LIMIT = ReadMaxRows(2**62)
"""The limit of a micro-batch with a reader inside the job, where neither option nor trigger set one.

Spark passes ReadAllAvailable instead with ``Trigger.Once``, and nothing else shows that trigger.
"""

_RECORD_INTERVAL = 30 * SECOND
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
"""Transient errors; a full disk is one of them, because recorded progress lets the daemon free space."""


class ConsumerClaim:
    """The exclusive use of a consumer's name, and the consumer's recorded progress.

    Args:
        spool: the spool; it need not exist yet.
        name: the consumer's name.
        clock: Unix nanoseconds.

    Attributes:
        recorded: the last epoch that this process has recorded as done; -1 before it has recorded one.
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
        """Claims the name until this process ends.

        Raises:
            SpoolInUseError: another query uses it.
        """
        deadline = time.monotonic() + _TAKEOVER + self._spool.storage.takeover
        while self._held is None:
            held = ExitStack()
            try:
                held.enter_context(consumers.claimed(self._spool, self._name))
                self._held = held
            except SpoolInUseError as error:
                if time.monotonic() >= deadline:
                    hint = "Stop that query, or give this one another name with option consumer."
                    raise SpoolInUseError(str(error), hint=hint) from None
                time.sleep(0.05)

    def registered(self, *, oldest: bool) -> consumers.Consumer:
        """Registers a new query; from then on the spool keeps every epoch after the returned position.

        Args:
            oldest: whether a known consumer starts at the oldest epoch instead of its recorded position. One whose next
                epoch is pruned starts there in any case.
        """
        known = consumers.register(self._spool, self._name, now=self._clock())
        before_oldest = self._spool.floor() - 1
        if known.epoch < before_oldest or (oldest and known.epoch > before_oldest):
            consumers.record(self._spool, self._name, self._spool.floor() - 1, now=self._clock())
            # The floor may have moved before the first record; from now on nothing is pruned past this consumer.
            known = consumers.record(self._spool, self._name, self._spool.floor() - 1, now=self._clock())
        return known

    def passed(self, epoch: int, at: str) -> None:
        """Records that the consumer is done with every epoch up to ``epoch``, whose identity is ``at``."""
        now = self._clock()
        since = abs(now - self._recorded_at)
        if self._spool.storage.rewrite_interval * SECOND > since:
            return  # too soon for this storage: latestOffset calls this again a quarter of a second later
        if epoch > self.recorded or since > _RECORD_INTERVAL:
            if epoch >= self.recorded:
                self.recorded, self._at = epoch, at
            consumers.record(self._spool, self._name, self.recorded, now=now, at=self._at)
            self._recorded_at = now


class TransientErrors:
    """Errors of the spool's storage that are retried, because an exception would end the query: for a while."""

    def __init__(self) -> None:
        self._since: float | None = None

    def over(self) -> None:
        """The storage works."""
        self._since = None

    def is_one(self, error: Exception) -> bool:
        """True if an error should be retried."""
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in _TRANSIENT:
            return False
        now = time.monotonic()
        self._since = self._since or now
        return now - self._since < _PATIENCE


class EpochStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Passes the epochs of a spool to one query, in order, each once.

    Args:
        spool: an absolute path.
        consumer: the name under which progress is recorded.
        limit: the limit of a micro-batch if the trigger sets none.
        in_job: starts the daemon; None if the daemon runs elsewhere.
        clock: Unix nanoseconds.
    """

    starts_at_oldest = True
    """True if a new query of a known consumer starts at the oldest epoch instead of the recorded position."""

    takes_every_epoch = True
    """True if ``groups`` holds no epoch back, so that a query without a limit need not weigh them."""

    may_be_available_now = True
    """True if the query may have ``Trigger.AvailableNow``."""

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
        self._spool_id = ""
        self._compared: set[tuple[int, str]] = set()
        self._weights: dict[int, EpochWeight] = {}
        self._consumer = consumer
        self._clock = clock
        self._claim = ConsumerClaim(self._spool, consumer, clock)
        self._limit = limit or (ReadAllAvailable() if in_job is None else _NO_LIMIT)
        self._in_job = in_job
        self._target: int | None = None
        self._position: dict[str, object] | None = None
        self._asked = False
        self._errors = TransientErrors()

    def admits(self, table: str) -> bool:
        """True if the rows of a table count towards limits."""
        return bool(table)

    def weights(self, first: int, last: int) -> Iterator[EpochWeight]:
        """The weights of the epochs from ``first`` to ``last``."""
        while first <= last and first in self._weights:
            yield self._weights[first]
            first += 1
        for epoch in self._spool.summaries(first, last):
            weight = self._weights[epoch.epoch] = EpochWeight.of(epoch, self.admits)
            yield weight

    def start_over(self, done: Offset) -> str:
        """The steps to start over if the spool is not the copy of ``done``, and the records that this affects."""
        oldest = self._spool.floor() - 1
        return f"start the query with a new checkpoint: {begins_at(self._spool, oldest, done)}"

    def groups(self, first: int, last: int) -> Iterable[Group]:
        """The groups of the epochs from ``first`` to ``last`` that a micro-batch may take now, in order."""
        return by_epoch(self.weights(first, last))

    def begin(self, first: int, last: int) -> str:
        """Prepares a micro-batch before Spark has its offset; returns the options that decide what it writes."""
        return ""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a micro-batch if the trigger sets none."""
        return self._limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Ends the run with the newest epoch of now, or with Spanner's clock if the reader is inside the job."""
        self._claim.hold()
        if self._in_job is None:
            self._target = self._spool.latest()
        else:
            self._in_job.read_until_now()

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """The position of a new query; the consumer is registered first, so that no epoch after it is pruned."""
        self._claim.hold()
        known = self._claim.registered(oldest=self.starts_at_oldest)
        if self.starts_at_oldest and 0 < known.epoch == self._spool.floor() - 1:
            log.say(
                "spark_sink",
                f"consumer {self._consumer} starts with epoch {known.epoch + 1}, the oldest that the spool at"
                f" {self._spool.path} keeps: nothing that was committed before it is delivered",
                action="consumer_starts",
                first_epoch=known.epoch + 1,
            )
        return Offset(known.epoch, at=known.at).to_json()

    def latestOffset(  # noqa: N802
        self, start: dict[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        """The end of the next micro-batch; ``start`` if there is no new epoch for a quarter of a second.

        PySpark before 4.2 passes no arguments.
        """
        if start is None or limit is None:
            return self._latest_of_old_spark()
        return self._latest(start, limit, may_end_run=self._target is not None or reads_until_now(self._in_job, limit))

    def _latest_of_old_spark(self) -> dict[str, object]:
        """The end of the next micro-batch for a Spark that passes neither start nor limit.

        The first one of a run ends with the newest epoch, for ``Trigger.AvailableNow`` takes no other. With the reader
        inside the job it ends with Spanner's clock: nothing says which trigger the query has.
        """
        first, self._asked = not self._asked, True
        limit = ReadAllAvailable() if first and self.may_be_available_now else self._limit
        if self._in_job is not None and not first:
            self._in_job.read_on()
        if self._position is None:
            self._position = self._end_of_next(self._registered(), limit)
        else:
            self._position = self._latest(self._position, limit, may_end_run=first and self.may_be_available_now)
        return self._position

    def _latest(self, start: dict[str, object], limit: ReadLimit, *, may_end_run: bool) -> dict[str, object]:
        """The end of the next micro-batch; where ``start`` may end the run, an error does not pass for no news."""
        while True:
            try:
                end = self._end_of_next(start, limit)
            except (SpoolError, OSError) as error:
                if not self._errors.is_one(error):
                    raise
                time.sleep(NEWS_WAIT)
                if not may_end_run:
                    return start
            else:
                self._errors.over()
                return end

    def _end_of_next(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        done = Offset.from_json(start)
        end = self._next(done, limit)
        if end <= done.epoch:
            return start
        at, pinned = self._identity(end), self.begin(done.epoch + 1, end)
        self._compared = {one for one in self._compared if one[0] >= done.epoch} | {(end, at)}
        return Offset(end, self._spool_id, pinned, at).to_json()

    def _registered(self) -> dict[str, object]:
        """The recorded position of the consumer, which is registered if it is new."""
        self._claim.hold()
        known = self._claim.registered(oldest=False)
        self._identify(Offset(known.epoch, at=known.at))
        return Offset(known.epoch, self._spool_id, at=known.at).to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """The newest epoch, for the progress that Spark reports, with how far the query trails the clock.

        ``lag_seconds`` is from the watermark of the last epoch that was planned, or where none was, of the newest one.
        A spool that cannot be read just now must not end the query: then nothing is reported.
        """
        with suppress(SpoolError, OSError):
            return self._progress(self._position, self._clock()) if self._spool_id else None
        return None

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch, each with all that it needs to read its rows."""
        self._claim.hold()
        self._position = end
        done, last = Offset.from_json(start), Offset.from_json(end)
        if last.epoch < done.epoch:
            raise SpoolError(
                f"Spark's checkpoint goes back from epoch {done.epoch} to {last.epoch}",
                hint="It is damaged: restore it from a backup, or start the query with a new checkpoint.",
            )
        self._identify(done)
        self._identify(last)
        if last.epoch > done.epoch:
            self._check_kept(done)
        epochs = self._spool.manifests(done.epoch + 1, last.epoch)
        return self.plan(warning_of_gaps(verified(epochs, done, last, self._other_copy)), last.pinned)

    def plan(self, epochs: Iterable[Manifest], pinned: str) -> list[InputPartition]:
        """The tasks for these epochs; none if they are empty."""
        raise NotImplementedError

    def commit(self, end: dict[str, object]) -> None:
        """Records progress; latestOffset has usually done so already."""
        try:
            done = Offset.from_json(end)
            self._claim.passed(done.epoch, done.at)
        except SpoolError as error:
            if not self._errors.is_one(error):
                raise

    def _next(self, done: Offset, limit: ReadLimit) -> int:
        self._claim.hold()
        until_now = reads_until_now(self._in_job, limit)
        self._identify(done)  # first: a reader would begin another spool in place of the checkpoint's
        self._check_kept(done)  # before it is recorded, because nothing is pruned past what a consumer has recorded
        if self._in_job is not None:
            self._in_job.ensure()
        self._claim.passed(done.epoch, done.at)
        for passed in [epoch for epoch in self._weights if epoch <= done.epoch]:
            del self._weights[passed]
        if self._in_job is not None and until_now:
            whole = isinstance(limit, ReadAllAvailable)
            is_recorded = self._asked and self._position is None  # it may be before Spark's own, which is not known
            newest = sealed_until_now(self._in_job, self._spool, done.epoch, whole=whole, takes_empty=is_recorded)
            return self._admitted(done, newest, limit) if newest > done.epoch else done.epoch
        deadline = time.monotonic() + NEWS_WAIT
        seen = done.epoch
        while True:
            newest = self._spool.latest()
            if newest > seen:
                seen = newest
                end = self._admitted(done, newest, limit)
                if end > done.epoch:
                    return end
            if self._target is not None or time.monotonic() >= deadline:
                return done.epoch
            if self._in_job is not None:
                self._in_job.ensure()
            time.sleep(self._spool.storage.poll_interval)

    def _admitted(self, done: Offset, newest: int, limit: ReadLimit) -> int:
        self._identify(Offset(done.epoch))
        self._check_kept(done)
        last = newest if self._target is None else min(newest, self._target)
        if (isinstance(limit, ReadAllAvailable) or limit == _NO_LIMIT) and self.takes_every_epoch:
            return last
        first = done.epoch + 1
        return admitted(self.groups(first, min(last, done.epoch + WEIGHED_EPOCHS)), limit) or done.epoch

    def _check_kept(self, done: Offset) -> None:
        """Verifies that the spool has the epoch after an offset, or that it is not sealed yet."""
        if done.epoch + 1 < (floor := self._spool.floor()):
            raise SpoolError(
                f"epoch {done.epoch + 1} is not in the spool at {self._spool.path}, which keeps {floor} to"
                f" {self._spool.latest()}: it was pruned, because this query's consumer had passed it or was not"
                " registered",
                hint=f"Restore the newest checkpoint, and nothing is lost; or {self.start_over(done)}",
            )

    def _identify(self, offset: Offset) -> None:
        """Verifies that the spool is the one of the checkpoint."""
        if not self._spool_id and self._spool.latest():  # before its first epoch a spool may still be created again
            self._spool_id = self._spool.header().spool_id
        if offset.spool_id and not self._spool_id:
            raise SpoolError(
                f"there are no epochs at {self._spool.path} any more",
                hint="Restore the spool, or start the query with a new checkpoint.",
            )
        if offset.spool_id and offset.spool_id != self._spool_id:
            raise SpoolError(
                f"Spark's checkpoint belongs to spool {offset.spool_id}, but at {self._spool.path} is {self._spool_id}",
                hint="Restore the spool of the checkpoint, or start the query with a new checkpoint.",
            )
        if offset.epoch > self._spool.latest():
            raise self._other_copy(offset, f"it ends with epoch {self._spool.latest()}")
        if offset.at and (offset.epoch, offset.at) not in self._compared:
            if found := contradiction(self._spool, offset.epoch, offset.at):
                raise self._other_copy(offset, found)
            self._compared.add((offset.epoch, offset.at))

    def _identity(self, epoch: int) -> str:
        """The identity of a sealed epoch."""
        weight = self._weights.get(epoch)
        if weight is not None and weight.summary is not None:
            return weight.summary.identity
        return next(self._spool.manifests(epoch, epoch)).identity

    def _progress(self, position: dict[str, object] | None, now: int) -> dict[str, object]:
        """The newest epoch with the watermark of ``position``, or of that epoch, and its lag behind ``now``."""
        newest = self._spool.latest()
        report = Offset(newest, self._spool_id).to_json()
        at = Offset.from_json(position).at if position else newest and self._identity(newest)
        if at:
            watermark = watermark_of(at)
            lag = round(max(now - watermark, 0) / SECOND, 3)
            report |= {"watermark": format_rfc3339(watermark), "lag_seconds": lag}
        return report

    def _other_copy(self, offset: Offset, found: str) -> SpoolError:
        return other_copy(self._spool, "Spark's checkpoint", offset, found, self.start_over(offset))
