"""Compares the last epoch that a table has with the spool: one that was put back from an older copy has others.

Under the numbers that a table has such a spool has other epochs, whose rows the table would never get.
"""

from contextlib import suppress

from connector.spool.reading import Spool
from spark_sink.source.offsets import Offset
from spark_sink.source.spool_copies import begins_at, contradiction, other_copy


def identified(spool: Spool, epoch: int) -> Offset:
    """An epoch with its identity, which is empty if the spool does not have the epoch."""
    with suppress(FileNotFoundError):
        return Offset(epoch, at=spool.manifest(epoch).identity)
    return Offset(epoch)


def check_copy(spool: Spool, target: str, done: Offset, restart: str) -> None:
    """Compares the last epoch of a table with that of the spool.

    Args:
        spool: the spool.
        target: the table, as a statement names it.
        done: its last epoch; epoch 0 if there is none.
        restart: how to start over, for the hint.

    Raises:
        SpoolError: the spool is another copy.
    """
    latest = spool.latest()
    found = f"it ends with epoch {latest}" if done.epoch > latest > 0 else contradiction(spool, done.epoch, done.at)
    if found:
        raise other_copy(spool, f"table {target}", done, found, restart)


def start_over(spool: Spool, done: Offset) -> str:
    """How to start over without the loss of a row: under another name a table takes every epoch that the spool has."""
    other_name = "use another name (sink.name, or the argument consumer of merge_into) with a new checkpoint"
    return f"{other_name}: {read_again(spool, done)}"


def read_again(spool: Spool, done: Offset) -> str:
    """Sentences: which records a table gets twice under another name, or misses, and what that does to its rows."""
    begins = begins_at(spool, spool.floor() - 1, done)
    return f"{begins} Merged rows stay right by that; an appended row that is there twice has the same _uuid."
