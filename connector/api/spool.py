"""Reads a spool: its epochs, and how far its consumers are."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from connector.api.checkpoint import Checkpoint
from connector.api.epochs import Epoch
from connector.api.spool_epochs import SpoolEpochs
from connector.spool import consumers, reading


@dataclass(frozen=True, slots=True)
class ConsumerProgress:
    """The progress of a consumer of a spool.

    Attributes:
        name: the consumer's name.
        epoch: the last epoch that it is done with; 0 if there is none.
        updated: when it last recorded that; nanoseconds since 1970.
    """

    name: str
    epoch: int
    updated: int


class Spool:
    """A spool, for reading. It never blocks the daemon that writes it, and sees whole epochs only.

    All methods read files at once, and are not asynchronous.

    Args:
        path: a folder, or ``gs://bucket/prefix`` (which needs the extra ``gcs``). It need not exist yet.

    Raises:
        SpoolError: from every method: there is no spool, or it is damaged, of a newer version, or cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self._spool = reading.Spool.at(path)
        self._epochs = SpoolEpochs(self._spool)

    @property
    def path(self) -> str:
        """The spool's folder, absolute, or its URL."""
        return self._spool.path

    @property
    def stream(self) -> str:
        """The change stream that the spool holds, ``project/instance/database/change_stream``."""
        return self._epochs.stream()

    @property
    def first(self) -> int:
        """The number of the oldest epoch that is kept; 1 if there is none yet."""
        return self._spool.floor()

    @property
    def latest(self) -> int:
        """The number of the newest epoch; 0 if there is none yet."""
        return self._spool.latest()

    def epochs(self, *, after: str | None = None) -> Iterator[Epoch]:
        """The epochs that are kept, oldest first, up to the newest one when the iteration starts.

        It registers no consumer, so the daemon may delete epochs meanwhile.

        Args:
            after: an :attr:`Epoch.checkpoint` of this spool: only the epochs after it.

        Raises:
            ConfigurationError: the checkpoint is not valid, or of another change stream.
            SpoolError: epochs after the checkpoint were deleted; the spool is another copy than the one that the
                checkpoint is of; or an epoch was deleted meanwhile.
        """
        return self._epochs.after(None if after is None else Checkpoint.of(after, self.stream))

    def consumers(self) -> list[ConsumerProgress]:
        """Every registered consumer, by name."""
        return [
            ConsumerProgress(known.consumer, known.epoch, known.updated) for known in consumers.consumers(self._spool)
        ]
