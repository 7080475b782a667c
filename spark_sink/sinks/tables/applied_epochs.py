"""The identity of the last epoch that a table has, and how to start over if the spool has another under its number."""

from contextlib import suppress

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
