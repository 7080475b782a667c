"""The deleted rows that tables keep during a backfill, and the spool's record of them (``consumers/<name>.kept``).

A table is named before the first of its rows is kept, and until all of them are removed. So whoever comes after a
process that was killed knows where such rows may be.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from pydantic import BaseModel, ConfigDict
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from connector.spool.backfill.records import backfills
from connector.spool.consumers import KEPT
from connector.spool.manifest import VERSION
from connector.spool.reading import Spool, to_json
from spark_sink.sinks.tables.config import Mode
from spark_sink.sinks.tables.formats.session import writing
from spark_sink.sinks.tables.formats.store import TableStore
from spark_sink.sinks.tables.lake_table import CAPTURED, DELETED, NOTHING, is_noted, table_name
from spark_sink.sinks.tables.table_faults import is_missing, refused, tried


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


def remove_kept(spark: SparkSession, store: TableStore, name: str, *, mode: Mode, keeps_deleted: bool) -> None:
    """Removes the deleted rows of a table of Spanner that were kept, and what other rows have noted, if it is there.

    Raises:
        TableError: Spark refuses to.
        PySparkException, Py4JError: the destination does not answer, or fails for more than one table.
    """
    target = store.target(table_name(name))
    with refused(name, target):
        try:
            store.refresh(target)
            rows = spark.table(target)
            due = [
                statement
                for condition, statement in _statements(target, mode, keeps_deleted=keeps_deleted).items()
                if (condition == DELETED or CAPTURED in rows.columns) and rows.where(condition).limit(1).collect()
            ]
        except AnalysisException as error:
            if not is_missing(error):
                raise
            return
        with writing(spark):
            for statement in due:
                tried(name, spark.sql, statement)


def _statements(target: str, mode: Mode, *, keeps_deleted: bool) -> dict[str, str]:
    """The statements that end what is kept for a backfill, by the condition of the rows that need them."""
    found = {}
    if not keeps_deleted:
        found[DELETED] = f"DELETE FROM {target} WHERE {DELETED}"
    if mode == "merge":
        found[is_noted()] = f"UPDATE {target} SET {CAPTURED} = {NOTHING} WHERE {is_noted()}"
    return found
