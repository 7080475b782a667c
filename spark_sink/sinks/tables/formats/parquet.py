"""Parquet files with a commit log: each change once, for Spark's own reader of a folder.

::

    <path>/<table>/_commits/<last epoch, 16 digits>-<progress>.json   written whole, once: the files of these epochs,
                                                                      the last one's identity, and all columns so far
    <path>/<table>/_staging/<progress>/                               what is being written; no reader sees it
    <path>/<table>/<progress>-<first>-<last>-<n>.parquet              the files

Rows are written below ``_staging``, the files are named in an entry of the commit log, and then moved to where readers
see them. A run that was killed before the entry repeats the epochs; one that was killed after it only moves files.
Spark skips names with an underscore, so each file it finds is of a commit, and whole. A reader that must not see a part
of a commit reads the files that the entries name: so no entry is ever removed.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession

from spark_sink.sinks.tables.config import TableOptions
from spark_sink.sinks.tables.formats.folders import SparkFolders
from spark_sink.sinks.tables.formats.store import PreparedTable, TableStore
from spark_sink.sinks.tables.lake_table import LakeTable, added_columns, declared, own_names
from spark_sink.sources.changes.offsets import Offset

_COMMITS, _STAGING = "_commits", "_staging"


class ParquetStore(TableStore):
    """Folders of Parquet files."""

    provider = "parquet"
    log = _COMMITS

    def __init__(self, spark: SparkSession, options: TableOptions, progress: str) -> None:
        super().__init__(spark, options, blake2b(progress.encode(), digest_size=8).hexdigest())
        self._folders = SparkFolders(spark)
        self._columns: dict[str, Mapping[str, str]] = {}
        self._listed: dict[str, list[str]] = {}

    def target(self, name: str) -> str:
        """Its folder."""
        return f"{self._options.path}/{name}"

    def prepare(self, table: LakeTable) -> PreparedTable:
        """Compares types: each file has its own columns, and a reader merges them (option ``mergeSchema``)."""
        self._listed[table.name] = self._newest(table.name)
        found = self._columns_of(table.name, self._listed[table.name])
        table = table.named_as(found)
        wanted = table.all_columns("append")
        small = {name.lower(): kind for name, kind in found.items()}
        self.check_types(table, small, wanted)
        self._columns[table.name] = {**found, **wanted}
        return PreparedTable(table, is_keyed=False)

    def type_hint(self, target: str, column: str) -> str:
        """A folder whose files have two types of a column cannot be read."""
        del column
        return f"Move the folder {target} elsewhere: a new one gets the changes from here on."

    def applied(self, name: str) -> Offset:
        """From the names in the commit log; the files of the newest entry are moved if they are not yet.

        Right after a preparation the log is not listed again; later it is, because another run may have committed.
        """
        newest = self._listed.pop(name, None)
        if newest is None:
            newest = self._newest(name)
        ours = [entry for entry in newest if entry.endswith(f"-{self._progress}.json")]
        if not ours:
            self._new.add(name)  # no entry is ever removed
            return Offset(0)
        document = self._entry(name, ours[0])
        self._publish(name, document)
        return Offset(int(ours[0].partition("-")[0]), at=document.get("at", ""))

    def append(self, rows: DataFrame, name: str, first: int, last: Offset) -> None:
        """Writes files, commits, and moves them."""
        folder, staging = self.target(name), self._staging(name)
        rows.write.mode("overwrite").parquet(staging)
        written = sorted(found for found in self._folders.names(staging) if found.endswith(".parquet"))
        files = {
            found: f"{self._progress}-{first:016d}-{last.epoch:016d}-{number:05d}.parquet"
            for number, found in enumerate(written)
        }
        document = {
            "version": 1,
            "first": first,
            "last": last.epoch,
            "at": last.at,
            "columns": self._columns[name],
            "files": sorted(files.values()),
            "staged": files,
        }
        entry = f"{last.epoch:016d}-{self._progress}.json"
        self._folders.put(f"{folder}/{_COMMITS}", entry, orjson.dumps(document))
        self._publish(name, document)

    def has(self, name: str, epoch: int) -> bool:
        """Each commit is an entry of the log, whatever its rows are."""
        del name, epoch
        return True

    @contextmanager
    def committing(self, last: Offset) -> Iterator[None]:
        """Nothing: only :meth:`append` commits."""
        del last
        yield

    def columns(self, name: str) -> Mapping[str, str]:
        """Those of all files."""
        return self._columns_of(name, self._newest(name))

    def key(self, name: str) -> tuple[str, ...]:
        """None: rows are appended."""
        del name
        return ()

    def rows(self, name: str) -> DataFrame:
        """The columns that are added to those of Spanner, of the files that readers see."""
        columns, folder = declared(added_columns("append", own_names(self.columns(name)))), self.target(name)
        if not any(file.endswith(".parquet") for file in self._folders.names(folder)):
            return self._spark.createDataFrame([], columns)
        return self._spark.read.schema(columns).parquet(folder)

    def _columns_of(self, name: str, entries: Iterable[str]) -> dict[str, str]:
        """The columns of all files with their types, as far as the newest entries have them."""
        found: dict[str, str] = {}
        for entry in entries:
            found |= self._entry(name, entry).get("columns", {})
        return found

    def _newest(self, name: str) -> list[str]:
        """The newest entry of each name under which epochs are kept."""
        entries = sorted(
            entry for entry in self._folders.names(f"{self.target(name)}/{_COMMITS}") if entry.endswith(".json")
        )
        return list({entry.partition("-")[2]: entry for entry in entries}.values())

    def _entry(self, name: str, entry: str) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(self._folders.read(f"{self.target(name)}/{_COMMITS}/{entry}"))
        return found

    def _publish(self, name: str, document: Mapping[str, Any]) -> None:
        """Moves the files of an entry from the staging folder, those that are still there."""
        folder, staging = self.target(name), self._staging(name)
        waiting = set(self._folders.names(staging))
        if not waiting:
            return
        staged: dict[str, str] = document["staged"]
        for found, file in staged.items():
            if found in waiting:
                self._folders.move(f"{staging}/{found}", f"{folder}/{file}")
        self._folders.delete(staging)

    def _staging(self, name: str) -> str:
        return f"{self.target(name)}/{_STAGING}/{self._progress}"
