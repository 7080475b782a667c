"""The record of where a sink started: up to when its tables lack what was committed, unless a backfill delivered it."""

from pydantic import Field

from connector.spool.consumers import START
from connector.spool.manifest import Document, Timestamp
from connector.spool.reading import Spool, to_json


class SinkStart(Document):
    """The start of a sink.

    Attributes:
        requested: ``sink.start``, as it was then.
        epoch: it delivers every epoch after this one.
        after: it delivers all that was committed after this timestamp, and its tables are incomplete up to it.
        tables: the tables that there were then: a later one is complete.
        id: of this start. A sink that was forgotten and starts once more has another, so that nothing it did before
            passes for done.
    """

    requested: str
    epoch: int = Field(ge=0)
    after: Timestamp
    tables: tuple[str, ...] = ()
    id: str = ""


def start_of_sink(spool: Spool, name: str) -> SinkStart | None:
    """The recorded start of a sink; None if an older program has started it, or if it has not started.

    Raises:
        SpoolError: the record is corrupt, of a newer version, or cannot be read.
    """
    return spool.find(_path(name), SinkStart, "it is not a valid start of a sink")


def write_start(spool: Spool, name: str, start: SinkStart) -> None:
    """Records the start of a sink; :func:`connector.spool.consumers.forget` removes it.

    Raises:
        SpoolError: it cannot be written.
    """
    spool.storage.replace(_path(name), to_json(start))


def _path(name: str) -> str:
    return f"consumers/{name}{START}"
