"""The identity of the last epoch that a table has, and how to start over if the spool has another under its number.

A process that was replaced may still commit. Another one has what it lacks then, and may have deleted some of it since.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from connector.spool.reading import Spool
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.spool_copies import begins_at


def identified(spool: Spool, epoch: int) -> Offset:
    """An epoch with its identity, which is empty if the spool does not have the epoch."""
    with suppress(FileNotFoundError):
        return Offset(epoch, at=spool.manifest(epoch).identity)
    return Offset(epoch)


def start_over(spool: Spool, done: Offset) -> str:
    """The steps to start over without losing a row: under another name a table takes every epoch of the spool."""
    other_name = "use another name (sink.name, or the argument consumer of merge_into) with a new checkpoint"
    return f"{other_name}: {read_again(spool, done)}"


def read_again(spool: Spool, done: Offset) -> str:
    """Sentences about the records that a table gets twice, or misses, under another name, and the effect."""
    begins = begins_at(spool, spool.floor() - 1, done)
    return f"{begins} Merged rows stay right by that; an appended row that is there twice has the same _uuid."


@dataclass
class Attempts:
    """The attempts to commit changes to a table, each of which is a call.

    A commit comes second only to one that was made since the last epoch of its table was read. If that is of the same
    epochs, nothing is left to do: the statement would insert rows again that a later epoch has deleted.

    Attributes:
        check: raises SpoolInUseError if another sink has taken over.
        is_done: reads whether the table has these epochs by now; it is not asked before the first attempt.
    """

    check: Callable[[], None] = lambda: None
    is_done: Callable[[], bool] = lambda: False
    _is_first: bool = field(default=True, init=False)

    def __call__(self, commit: Callable[[str], object], statement: str) -> None:
        """Runs a statement that commits."""
        if self._is_first or not self.is_done():
            self._is_first = False
            self.check()  # last: what was read is of this process's time
            commit(statement)
