"""The stream of a sink of ours: micro-batches whose tasks write, each noted in the spool before it is begun.

What a micro-batch holds, and the options that shape what it writes, are noted in the spool
(:mod:`spark_sink.sink.started_batches`) and pinned in Spark's offset before anything is written. So a batch that was
begun comes again as it was, whatever became of the epochs that were sealed since, or of Spark's checkpoint; whether the
options that it was begun with bind it, each sink decides.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes

from connector.errors import SpoolError
from connector.spool.consumers import Consumer, find
from spark_sink.sink.started_batches import BegunBatch, BegunBatches
from spark_sink.source.admission import EpochWeight, Group
from spark_sink.source.copies import begins_at, contradiction, other_copy
from spark_sink.source.epoch_stream import EpochStreamReader
from spark_sink.source.offsets import Offset


class SinkStreamReader(EpochStreamReader):
    """Gives a spool's epochs to tasks that write them.

    Args:
        spool: an absolute path, or a URL.
        consumer: the sink's name.
        shape: the options that shape what is written, as text.
        batch_bytes: bytes of segments in a micro-batch, so that one that broke off does not repeat hours.
        clock: nanoseconds since the epoch.
    """

    starts_at_oldest = False  # a minute that is half pruned would be written again under another name
    takes_every_epoch = False

    def __init__(
        self,
        spool: str,
        consumer: str,
        shape: str,
        *,
        batch_bytes: int,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__(spool, consumer, limit=ReadMaxBytes(batch_bytes), clock=clock)
        self._begun = BegunBatches(self._spool, consumer)
        self._pinned = shape
        self._checked = False

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """As of any reader; a checkpoint that is older than the record is refused."""
        self._check_checkpoint(Offset.from_json(start))
        return super().partitions(start, end)

    def _next(self, begun: Offset, limit: ReadLimit) -> int:
        self._check_checkpoint(begun)
        return super()._next(begun, limit)

    def _check_checkpoint(self, begun: Offset) -> None:
        """Only once: it is what this process finds that somebody may have put back."""
        if self._checked:
            return
        self._claim.hold()
        known = find(self._spool, self._consumer)
        if known is not None and (found := self._not_of(known)):
            done = Offset(known.epoch, at=known.at)
            raise other_copy(self._spool, "the record of what this sink has delivered", done, found, self.anew(done))
        self._identify(begun)
        if known is not None and begun.epoch < known.epoch:
            raise SpoolError(
                f"Spark's checkpoint is at epoch {begun.epoch}, but of the spool at {self._spool.path} this sink has"
                f" delivered what is up to epoch {known.epoch}",
                hint="The checkpoint is an older copy: remove it, and the sink goes on where it was.",
            )
        self._checked = True

    def _not_of(self, known: Consumer) -> str:
        """What the spool has in place of what its own record of this sink says; empty if it fits."""
        if known.epoch > self._spool.latest() > 0:
            return f"it ends with epoch {self._spool.latest()}"
        return contradiction(self._spool, known.epoch, known.at)

    def anew(self, done: Offset) -> str:
        """A sink goes on where the spool has recorded it, if that is of this copy."""
        known = find(self._spool, self._consumer)
        if known is not None and not self._not_of(known):
            begins = begins_at(self._spool, known.epoch, done)
            return f"remove its checkpoint, and this sink goes on after epoch {known.epoch}: {begins}"
        forget = f"`spanner-cdc spool {self._spool.path} --forget {self._consumer}`"
        return f"{forget} and remove its checkpoint: {begins_at(self._spool, self._spool.floor() - 1, done)}"

    def ready(self, epochs: Iterable[EpochWeight]) -> Iterable[Group]:
        """What of these epochs can be written now, in groups that are written together."""
        raise NotImplementedError

    def groups(self, first: int, last: int) -> Iterable[Group]:
        """What is ready; but a batch that was begun comes as it was."""
        begun = self._noted(first)
        if begun is not None:
            return [Group(begun.last, 0, 0, 0)]
        return self.ready(self.weights(first, last))

    def begin(self, first: int, last: int) -> str:
        """Notes in the spool that these epochs are begun; returns the options that shape what is written of them."""
        begun = self._noted(first)
        if begun is None or not begun.pinned:
            begun = BegunBatch(first=first, last=last, pinned=self._pinned, at=self._identity(last))
            self._begun.begin(begun, done=self._claim.recorded)
        return begun.pinned

    def _noted(self, first: int) -> BegunBatch | None:
        """What is noted of a batch that begins there.

        Raises:
            SpoolError: it was begun with epochs of another copy of this spool.
        """
        begun = self._begun.at(first)
        if begun is None or not begun.pinned:
            return begun
        latest = self._spool.latest()
        ends = f"it ends with epoch {latest}" if begun.last > latest else ""
        if found := ends or contradiction(self._spool, begun.last, begun.at):
            done = Offset(begun.last, at=begun.at)
            anew = f"remove {self._begun.where}, and what was written of that micro-batch may be there twice."
            raise other_copy(self._spool, "a micro-batch that this sink has begun", done, found, anew)
        return begun
