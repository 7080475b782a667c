"""Which micro-batches of files were begun: what the spool knows of them, whatever becomes of Spark's checkpoint.

An open minute that is written early ends with what was sealed at that moment, and files are shaped by the options of
that moment. So each micro-batch is noted beside the consumer's own record before Spark hears of it. A query with
another checkpoint begins where the consumer's record stands, and meets the batches after it as they were.
"""

import time

from pydantic import BaseModel, ConfigDict, Field

from connector.spool.manifest import VERSION
from connector.spool.reading import Spool, to_json


class BegunBatch(BaseModel):
    """The epochs of a micro-batch, and the options that shape its files as text; empty where none were noted.

    ``at`` is the identity of its last epoch; empty in notes of before it was kept.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    first: int = Field(ge=1)
    last: int = Field(ge=1)
    pinned: str
    at: str = ""


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = VERSION
    batches: tuple[BegunBatch, ...]


class BegunBatches:
    """The micro-batches of a consumer that were begun and are not known to be done; one process notes them.

    Args:
        spool: the spool.
        consumer: the consumer's name.

    Raises:
        SpoolError: from every method, where the record is corrupt, of a newer version, or cannot be read or written.
    """

    def __init__(self, spool: Spool, consumer: str) -> None:
        self._spool = spool
        self._path = f"consumers/{consumer}.begun"  # not .json: that would be a consumer
        self.where = spool.storage.full(self._path)
        """The file, for people."""
        self._known: tuple[BegunBatch, ...] | None = None
        self._noted_at = 0.0

    def at(self, epoch: int) -> BegunBatch | None:
        """The batch that holds an epoch; or the epochs up to a later batch, for one ended there; or None."""
        for batch in self._batches():
            if epoch < batch.first:
                return BegunBatch(first=epoch, last=batch.first - 1, pinned="")
            if epoch <= batch.last:
                return batch
        return None

    def begin(self, batch: BegunBatch, *, done: int) -> None:
        """Notes a batch, durably, and drops those up to epoch ``done``, which the consumer's record has passed."""
        pause = self._noted_at + self._spool.storage.rewrite_interval - time.monotonic()
        if self._noted_at and pause > 0:
            time.sleep(pause)
        kept = [known for known in self._batches() if known.last > done]
        batches = tuple(sorted([*kept, batch], key=lambda known: known.first))
        self._spool.storage.replace(self._path, to_json(_Document(batches=batches)))
        self._known, self._noted_at = batches, time.monotonic()

    def _batches(self) -> tuple[BegunBatch, ...]:
        if self._known is None:
            self._known = self._read()
        return self._known

    def _read(self) -> tuple[BegunBatch, ...]:
        try:
            return self._spool.document(self._path, _Document, "it names no batches").batches
        except FileNotFoundError:
            return ()
