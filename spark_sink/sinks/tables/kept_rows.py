"""The spool's record of the deleted rows that tables keep during a backfill (``consumers/<name>.kept``).

A table is named before the first of its rows is kept, and until all of them are removed. So whoever comes after a
process that was killed knows where such rows may be.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from pydantic import BaseModel, ConfigDict

from connector.spool.backfill.records import backfills
from connector.spool.consumers import KEPT
from connector.spool.manifest import VERSION
from connector.spool.reading import Spool, to_json


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = VERSION
    tables: tuple[str, ...]


class KeptRows:
    """The tables that may have deleted rows; the process that holds the sink's lock writes the record.

    Args:
        spool: the change stream's.
        consumer: the sink's name.
        known: all tables: each may have some if there is a backfill and no record, as an older program leaves it.

    Raises:
        SpoolError: from every method, where the record is corrupt, or cannot be read or written.
    """

    def __init__(self, spool: Spool, consumer: str, known: Callable[[], Iterable[str]]) -> None:
        self._spool = spool
        self._path = f"consumers/{consumer}{KEPT}"
        self._known = known
        self._written_at = 0.0

    def tables(self) -> frozenset[str]:
        """The tables that may have deleted rows."""
        with suppress(FileNotFoundError):
            return frozenset(self._spool.document(self._path, _Document, "it names no tables").tables)
        return frozenset(self._known()) if backfills(self._spool) else frozenset()

    def add(self, tables: frozenset[str]) -> None:
        """Records that rows of these tables may be kept from now on."""
        if tables and not (self._is_recorded() and tables <= self.tables()):
            self._write(self.tables() | tables)

    def remove(self, tables: frozenset[str]) -> None:
        """Records that the rows of these tables are removed."""
        self._write(self.tables() - tables)

    def _is_recorded(self) -> bool:
        return self._spool.storage.exists(self._path)

    def _write(self, tables: frozenset[str]) -> None:
        pause = self._written_at + self._spool.storage.rewrite_interval - time.monotonic()
        if self._written_at and pause > 0:
            time.sleep(pause)
        self._spool.storage.replace(self._path, to_json(_Document(tables=tuple(sorted(tables)))))
        self._written_at = time.monotonic()
