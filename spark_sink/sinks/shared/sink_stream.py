"""The stream of a sink: micro-batches whose tasks write, each recorded in the spool before it is started.

The epochs of a micro-batch, and the options that decide what it writes, are recorded in the spool
(:mod:`spark_sink.sinks.shared.started_batches`) and pinned in Spark's offset before anything is written. So a started
batch is repeated as it was, whatever was sealed since and whatever happened to Spark's checkpoint. Each sink decides
whether the options with which it was started still bind it.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from connector.errors import SpoolError
from connector.spool.consumers import Consumer, find
from connector.spool.sink_start import start_of_sink
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.reports import REPORT
from spark_sink.sinks.shared.started_batches import StartedBatch, StartedBatches
from spark_sink.sources.changes.admission import EpochWeight, Group, by_epoch
from spark_sink.sources.changes.data_source import existing
from spark_sink.sources.changes.epoch_stream import EpochStreamReader
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.read_limits import ReadLimit, ReadMaxBytes
from spark_sink.sources.changes.spool_copies import begins_at, contradiction, other_copy
from spark_sink.sources.python_workers import set_imports_aside


class SinkSource(DataSource):
    """Writes a spool's epochs; each destination derives its own.

    Options: those of :attr:`spark_sink.sinks.shared.delivery.Delivery.options`, and the sink's own.
    """

    cores = 0
    """The most tasks of a micro-batch; 0 for one for each processor of this machine."""

    def schema(self) -> StructType:
        """The columns of a micro-batch's reports.

        Raises:
            SpoolError: there is no spool.
        """
        existing(self.options["spool"])
        return from_arrow_schema(REPORT)

    @property
    def most_tasks(self) -> int:
        """The most tasks of a micro-batch."""
        return self.cores or os.cpu_count() or 1


class SinkStreamReader(EpochStreamReader):
    """Plans a spool's epochs for tasks that write them.

    Args:
        feed: the spool.
        consumer: the sink's name.
        pinned: the options that decide what is written, as text.
        batch_bytes: bytes of segments in a micro-batch; bounds what a failed one repeats.
        clock: Unix nanoseconds.
    """

    starts_at_oldest = False
    """A sink starts where it was registered (``sink.start``): with the rest of a minute, files would have other names.
    """

    takes_every_epoch = False
    may_be_available_now = False

    def __init__(
        self,
        feed: Feed,
        consumer: str,
        pinned: str,
        *,
        batch_bytes: int,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__(feed.spool.path, consumer, limit=ReadMaxBytes(batch_bytes), clock=clock)
        self._feed = feed
        self._started = StartedBatches(self._spool, consumer)
        self._pinned = pinned
        self._checked = False
        self._is_new = False

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch; a checkpoint that is older than the spool's record is refused."""
        self._check_checkpoint(Offset.from_json(start))
        with self._feed.reporting_retries(self._consumer):
            return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs a task of a micro-batch, and reports what it retries."""
        with self._feed.reporting_retries(self._consumer, of_task=True):
            yield from self.written(partition)
        set_imports_aside()

    def written(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs a task of a micro-batch; yields its reports, or its rows."""
        raise NotImplementedError

    def _next(self, start: Offset, limit: ReadLimit) -> int:
        self._check_checkpoint(start)
        return super()._next(start, limit)

    def _registered(self) -> dict[str, object]:
        self._claim.hold()
        self._is_new = find(self._spool, self._consumer) is None
        return super()._registered()

    def _check_checkpoint(self, start: Offset) -> None:
        """Compares Spark's checkpoint with the spool's record, once: only a restart can meet a restored copy."""
        if self._checked:
            return
        self._claim.hold()
        known = find(self._spool, self._consumer)
        if known is not None and (found := self._not_of(known)):
            done = Offset(known.epoch, at=known.at)
            raise other_copy(
                self._spool, "the record of what this sink has delivered", done, found, self.start_over(done)
            )
        self._identify(start)
        if self.has_nothing(known) and start.epoch >= self._spool.floor() and (not known or start.epoch != known.epoch):
            first = max(known.epoch + 1 if known else 0, self._spool.floor())
            raise SpoolError(
                f"Spark's checkpoint is at epoch {start.epoch}, but the spool at {self._spool.path} has no record of"
                f" sink {self._consumer}: it was forgotten, or the spool was put back from an older copy",
                hint=f"Remove the checkpoint, and the sink delivers what is kept, from epoch {first} on.",
            )
        if known is not None and start.epoch < known.epoch:
            raise SpoolError(
                f"Spark's checkpoint is at epoch {start.epoch}, but of the spool at {self._spool.path} this sink has"
                f" delivered all up to epoch {known.epoch}",
                hint="The checkpoint is an older copy: remove it, and the sink continues where it was.",
            )
        self._checked = True

    def has_nothing(self, known: Consumer | None) -> bool:
        """True if the spool has no record of anything that this sink has delivered or started."""
        if known is None or self._is_new:
            return True
        return not known.at and start_of_sink(self._spool, self._consumer) is not None and self._started.is_empty

    def _not_of(self, known: Consumer) -> str:
        """The contradiction between the spool and its own record of this sink; empty if there is none."""
        if known.epoch > self._spool.latest() > 0:
            return f"it ends with epoch {self._spool.latest()}"
        return contradiction(self._spool, known.epoch, known.at)

    def start_over(self, done: Offset) -> str:
        """A sink continues where the spool has recorded it, if that record is of this copy."""
        known = find(self._spool, self._consumer)
        if known is not None and not self._not_of(known):
            begins = begins_at(self._spool, known.epoch, done)
            return f"remove its checkpoint, and this sink continues after epoch {known.epoch}: {begins}"
        forget = f"`spanner-cdc spool {self._spool.path} --forget {self._consumer}`"
        return f"{forget} and remove its checkpoint: {begins_at(self._spool, self._spool.floor() - 1, done)}"

    def ready(self, epochs: Iterable[EpochWeight]) -> Iterable[Group]:
        """The epochs that can be written now, in groups that are written together; here each epoch by itself."""
        return by_epoch(epochs)

    def groups(self, first: int, last: int) -> Iterable[Group]:
        """The groups that are ready; a started batch is repeated as it was."""
        started = self._recorded(first)
        if started is not None:
            return [Group(started.last, 0, 0, 0)]
        return self.ready(self.weights(first, last))

    def begin(self, first: int, last: int) -> str:
        """Records in the spool that these epochs are started; returns the options to write them with."""
        started = self._recorded(first)
        if started is None or not started.pinned:
            started = StartedBatch(first=first, last=last, pinned=self._pinned, at=self._identity(last))
            self._started.begin(started, done=self._claim.recorded)
        return started.pinned

    def _recorded(self, first: int) -> StartedBatch | None:
        """The record of a batch that begins there.

        Raises:
            SpoolError: it was started with epochs of another copy of this spool.
        """
        started = self._started.at(first)
        if started is None or not started.pinned:
            return started
        latest = self._spool.latest()
        ends = f"it ends with epoch {latest}" if started.last > latest else ""
        if found := ends or contradiction(self._spool, started.last, started.at):
            done = Offset(started.last, at=started.at)
            way_out = f"remove {self._started.where}, and what was written of that micro-batch may be there twice."
            raise other_copy(self._spool, "a micro-batch that this sink has started", done, found, way_out)
        return started
