"""The spool's record of the maintenance of tables (``consumers/<name>.maintenance``)."""

from contextlib import suppress

from pydantic import BaseModel, ConfigDict, Field

from connector.spool.consumers import MAINTENANCE
from connector.spool.manifest import VERSION, Timestamp
from connector.spool.reading import Spool, to_json


class TableRecord(BaseModel):
    """The record of a table.

    Attributes:
        since: when it was first looked at, in nanoseconds since 1970.
        expired_at: when its old versions were removed; 0 before that.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    since: Timestamp
    expired_at: Timestamp = 0

    @property
    def last(self) -> int:
        """The time when its old versions were removed, or might first have been."""
        return max(self.since, self.expired_at)


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = VERSION
    tables: dict[str, TableRecord] = Field(default_factory=dict)


class MaintenanceRecord:
    """The record; the process that holds the sink's lock writes it.

    Raises:
        SpoolError: from every method, where it is corrupt, or cannot be read or written.
    """

    def __init__(self, spool: Spool, consumer: str) -> None:
        self._spool = spool
        self._path = f"consumers/{consumer}{MAINTENANCE}"
        self._tables: dict[str, TableRecord] | None = None

    def of(self, table: str) -> TableRecord | None:
        """The record of a table, by its name in the destination; None if it was never looked at."""
        return self._known().get(table)

    def put(self, table: str, record: TableRecord) -> None:
        """Keeps the record of a table."""
        self._tables = {**self._known(), table: record}
        self._spool.storage.replace(self._path, to_json(_Document(tables=self._tables)))

    def _known(self) -> dict[str, TableRecord]:
        if self._tables is None:
            self._tables = {}
            with suppress(FileNotFoundError):
                self._tables = self._spool.document(self._path, _Document, "it names no tables").tables
        return self._tables
