"""Published cuts: the commit timestamp up to which every table of a destination is complete, and each table's version.

A sink commits its tables one after the other, so that whoever joins two of them may see half a transaction. When every
table of a micro-batch is committed, the sink publishes one record. It names the commit timestamp T of the micro-batch's
end and, for each table, the version that is the table's state at T. It is written last: a record that can be read is
true, whatever was killed.

A destination derives :class:`CutStore`, which knows the versions of its tables and where the records are. The records
of a sink have ascending epochs. An epoch has one record, or a second one that counts instead: if a table became
complete after the last epoch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from pydantic import Field

from connector.spool.manifest import Document, DocumentPart, Timestamp

HAS_REJECTED = "it has dead letters"
"""The reason why a table is incomplete that has some."""


class TableAtCut(DocumentPart):
    """A table at a published cut.

    Attributes:
        version: the table's state at the cut, as its destination names versions; empty if the destination has no such
            table yet, or has no versions.
        incomplete: the reason why the table lacks rows, or has too many; empty if it is complete.
    """

    version: str = ""
    incomplete: str = ""


class PublishedCut(Document):
    """A published cut.

    Attributes:
        timestamp: the commit timestamp T up to which the tables have every change, Unix nanoseconds.
        epoch: the last epoch of the micro-batch.
        spool_id: the spool's id.
        published_at: the time of publication by the clock of the sink's machine, Unix nanoseconds.
        tables: every table of the spool that the sink delivers, by its name in the source.
    """

    timestamp: Timestamp
    epoch: int = Field(ge=1)
    spool_id: str
    published_at: Timestamp
    tables: dict[str, TableAtCut]

    @property
    def incomplete(self) -> Mapping[str, str]:
        """The reason why each incomplete table is incomplete."""
        return {name: table.incomplete for name, table in self.tables.items() if table.incomplete}


class CutStore(ABC):
    """The published cuts of a sink's destination; the process that holds the sink's lock writes them.

    Attributes:
        notes_versions_last: whether :meth:`publish` fixes the tables' versions, because :meth:`versions` cannot.

    Raises:
        SpannerCdcError, PySparkException, Py4JError: from every method, if the destination refuses.
    """

    notes_versions_last: bool = False

    @abstractmethod
    def newest(self) -> PublishedCut | None:
        """The newest published cut of the sink's spool; None if there is none."""

    @abstractmethod
    def cuts(self) -> Sequence[PublishedCut]:
        """The published cuts that are kept, of the sink's spool, oldest first."""

    def versions(self, tables: Sequence[str]) -> Mapping[str, str]:
        """The versions that tables have now; a table that is not there, or has no versions, is absent.

        Args:
            tables: their names in the source.
        """
        del tables
        return {}

    @abstractmethod
    def publish(self, cut: PublishedCut) -> None:
        """Adds a record, whole or not at all; it is durable on return."""

    def publish_up_to(self, cut: PublishedCut, incomplete: Callable[[int], Mapping[str, str]]) -> None:
        """As :meth:`publish`, where a cut stands for the states at some timestamps before it.

        Args:
            cut: the cut.
            incomplete: returns the reasons as of a timestamp up to the cut's.
        """
        del incomplete
        self.publish(cut)
