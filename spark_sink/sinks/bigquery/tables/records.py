"""The spool's record of the tables that the sink has created (``consumers/bigquery.tables``).

They distinguish a table that was dropped from one that is new: a table that is created again would lack the rows that
were written before.
"""

from collections.abc import Mapping
from types import MappingProxyType

from connector.spool.consumers import MADE
from connector.spool.manifest import Document, DocumentPart
from connector.spool.reading import Spool, to_json
from spark_sink.sinks.bigquery.config import CONSUMER
from spark_sink.sinks.bigquery.tables.states import TableStage


class TableRecord(DocumentPart):
    """A table of the sink.

    Attributes:
        source: the table's name in Spanner.
        columns: the types of the columns that were created, by name.
        stopped: why it is stopped; None where it is not.
        schema_key: the schema of its newest row; empty where that is not known.
        mode: the sink's mode that it was created for; empty where that is not known.
    """

    source: str
    columns: dict[str, str]
    stopped: str | None = None
    schema_key: str = ""
    mode: str = ""

    @property
    def state(self) -> TableStage:
        """The table's state."""
        if self.stopped:
            return TableStage.REPAIRED if self.columns else TableStage.STOPPED
        return TableStage.MADE if self.columns else TableStage.UNKNOWN

    def moved(
        self,
        state: TableStage,
        *,
        schema_key: str,
        mode: str,
        columns: Mapping[str, str] = MappingProxyType({}),
        reason: str = "",
    ) -> "TableRecord":
        """The record of the table in another state.

        Args:
            state: the state.
            schema_key: the schema of its newest row.
            mode: what it was created for.
            columns: its columns, if it is written in that state; those recorded before stay.
            reason: why it is stopped, if it is in that state; a reason recorded before stays.
        """
        is_written = state in (TableStage.MADE, TableStage.REPAIRED)
        is_stopped = state in (TableStage.STOPPED, TableStage.REPAIRED)
        return TableRecord(
            source=self.source,
            columns={**self.columns, **columns} if is_written else {},
            stopped=(self.stopped or reason) if is_stopped else None,
            schema_key=schema_key,
            mode=mode,
        )


class _Document(Document):
    tables: dict[str, TableRecord]


class TableRecords:
    """The records of a sink, by ``project.dataset.table``; read once, written by one process at a time.

    Args:
        spool: the spool.
        name: the sink's.

    Raises:
        SpoolError: from every method, where the document is corrupt, or cannot be read or written.
    """

    def __init__(self, spool: Spool, name: str = CONSUMER) -> None:
        self._spool = spool
        self._path = f"consumers/{name}{MADE}"
        self._tables: dict[str, TableRecord] | None = None

    def all(self) -> dict[str, TableRecord]:
        """The records; changes of this mapping are kept by :meth:`save`."""
        if self._tables is None:
            known = self._spool.find(self._path, _Document, "it names no tables")
            self._tables = dict(known.tables) if known else {}
        return self._tables

    def save(self) -> None:
        """Writes the records into the spool."""
        self._spool.storage.replace(self._path, to_json(_Document(tables=self.all())))
