"""The names of the Spanner sink's files of dead letters: another sink's may be in the same folder."""

import re

from connector.spool.reading import Spool

_NAME = re.compile(r"[0-9a-f]+_spanner\..+_\d+_\d+")


def dead_letter_name(spool: Spool, consumer: str, epoch: int, place: int) -> str:
    """The name of the file that begins with an event of an epoch; a repeated micro-batch has the same.

    Args:
        spool: whose events they are.
        consumer: the sink's name.
        epoch: the epoch's number.
        place: the event's place in it.
    """
    return f"{spool.header().spool_id}_spanner.{consumer}_{epoch}_{place}"


def is_of_spanner(name: str) -> bool:
    """Whether a file of that name holds dead letters of a Spanner sink."""
    return _NAME.fullmatch(name) is not None
