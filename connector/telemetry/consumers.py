"""The consumers of a spool, as the status server reports them; read from the spool every few seconds."""

from contextlib import suppress
from dataclasses import dataclass

from connector.errors import SpoolError
from connector.spool.consumers import consumers
from connector.spool.reading import Spool


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """A consumer, the last epoch that it is done with, and that epoch's watermark; 0 if it is not known."""

    name: str
    epoch: int
    watermark: int


class ConsumerStates:
    """The consumers of a spool.

    Attributes:
        known: those that :meth:`read` found last.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.known: tuple[ConsumerState, ...] = ()

    def read(self) -> None:
        """Reads the consumers; where the spool cannot be read, those known before remain."""
        with suppress(SpoolError, OSError):
            before = {(state.name, state.epoch): state for state in self.known if state.watermark}
            self.known = tuple(
                before.get((one.consumer, one.epoch)) or ConsumerState(one.consumer, one.epoch, self._at(one.epoch))
                for one in consumers(self._spool)
            )

    def _at(self, epoch: int) -> int:
        with suppress(SpoolError, OSError):
            return self._spool.manifest(epoch).watermark_high if epoch > 0 else 0
        return 0
