"""The record of the first epoch that is kept, and of how long less is kept than ``spool.keep`` says.

``floor.json`` is written before the epochs below it are deleted. :meth:`connector.spool.reading.Spool.floor` reads its
first field; programs that do not know the others read on.
"""

from pydantic import Field

from connector.core.health.alarms import KeptLess
from connector.spool.manifest import Document, DocumentPart, Timestamp, parsed
from connector.spool.reading import Spool
from connector.spool.storage.store import contents

PATH = "floor.json"


class KeptTooShort(DocumentPart):
    """Epochs were deleted before their time, so that the spool stays within ``spool.max_bytes``.

    Attributes:
        since: when the first of them was, in nanoseconds since 1970.
        keep: nanoseconds of ``spool.keep``.
    """

    since: Timestamp
    keep: int = Field(ge=0)

    def less(self, kept: int) -> KeptLess | None:
        """The shortage if the spool spans ``kept`` nanoseconds of commit time; None once that is enough."""
        return KeptLess(self.since, self.keep, kept) if kept < self.keep else None


class FloorDocument(Document):
    """The first epoch that is kept, the id of the writer that has deleted those before, and what is kept too short."""

    first: int
    writer: str = ""
    short: KeptTooShort | None = None


def floor_of(spool: Spool) -> FloorDocument:
    """The document of a spool.

    Raises:
        SpoolError: it is corrupt, of a newer version, or cannot be read.
    """
    return floor_in(contents(spool.storage, PATH), spool.storage.full(PATH))


def floor_in(data: bytes | None, path: str) -> FloorDocument:
    """The document in the bytes of its file; None where there is none yet.

    Raises:
        SpoolError: it is corrupt, or of a newer version.
    """
    if data is None:
        return FloorDocument(first=1)
    return parsed(FloorDocument, data, path, "it is not a valid record of the first epoch")
