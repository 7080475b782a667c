"""The names of the Spanner sink's files of dead letters."""

from connector.spool.reading import Spool


def dead_letter_name(spool: Spool, consumer: str, epoch: int, place: int) -> str:
    """The name of the file that begins with an event of an epoch; a repeated micro-batch has the same.

    Args:
        spool: whose events they are.
        consumer: the sink's name.
        epoch: the epoch's number.
        place: the event's place in it.
    """
    return f"{dead_letter_prefix(spool, consumer, epoch)}{place}"


def dead_letter_prefix(spool: Spool, consumer: str, epoch: int) -> str:
    """The beginning of the names of an epoch's files; the place of an event follows."""
    return f"{spool.header().spool_id}_spanner.{consumer}_{epoch}_"
