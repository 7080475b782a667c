"""The spool's record of the micro-batches that a sink has started; it does not depend on Spark's checkpoint.

An open minute that is written early ends with the newest epoch of that time, and its files depend on the options of
that time. So each micro-batch is recorded beside the consumer's own record before Spark learns of it. A query with
another checkpoint begins after the consumer's record, and repeats the micro-batches that follow as they were.
"""

import time

from pydantic import Field

from connector.spool.consumers import STARTED
from connector.spool.manifest import Document, DocumentPart
from connector.spool.reading import Spool, to_json


class StartedBatch(DocumentPart):
    """The epochs of a micro-batch, and the options that decide what it writes.

    Attributes:
        first: its first epoch.
        last: its last epoch.
        pinned: the options as text; empty if none were recorded.
        at: the identity of its last epoch; empty in the record of an older program.
    """

    first: int = Field(ge=1)
    last: int = Field(ge=1)
    pinned: str
    at: str = ""


class _Document(Document):
    batches: tuple[StartedBatch, ...]


class StartedBatches:
    """The micro-batches of a consumer that were started and are not known to be done; one process records them.

    Args:
        spool: the spool.
        consumer: the consumer's name.

    Attributes:
        where: the path or URL of the record, for messages.

    Raises:
        SpoolError: from every method, if the record is corrupt, of a newer version, or cannot be read or written.
    """

    def __init__(self, spool: Spool, consumer: str) -> None:
        self._spool = spool
        self._path = f"consumers/{consumer}{STARTED}"
        self.where = spool.storage.full(self._path)
        self._known: tuple[StartedBatch, ...] | None = None
        self._written_at = 0.0

    def at(self, epoch: int) -> StartedBatch | None:
        """The batch with an epoch; else the epochs before the next recorded batch; else None."""
        for batch in self._batches():
            if epoch < batch.first:
                return StartedBatch(first=epoch, last=batch.first - 1, pinned="")
            if epoch <= batch.last:
                return batch
        return None

    @property
    def is_empty(self) -> bool:
        """True if no batch is recorded."""
        return not self._batches()

    def begin(self, batch: StartedBatch, *, done: int) -> None:
        """Records a batch, durably, and removes those up to epoch ``done``, which the consumer's record has passed."""
        pause = self._written_at + self._spool.storage.rewrite_interval - time.monotonic()
        if self._written_at and pause > 0:
            time.sleep(pause)
        remaining = [known for known in self._batches() if known.last > done]
        batches = tuple(sorted([*remaining, batch], key=lambda known: known.first))
        self._spool.storage.replace(self._path, to_json(_Document(batches=batches)))
        self._known, self._written_at = batches, time.monotonic()

    def _batches(self) -> tuple[StartedBatch, ...]:
        if self._known is None:
            known = self._spool.find(self._path, _Document, "it has no valid field batches")
            self._known = known.batches if known else ()
        return self._known
