"""Versions of tables of Delta: VACUUM keeps the files of former ones for a week, unless the table says otherwise."""

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_sink.sinks.tables.cuts.versions import Versions
from spark_sink.sinks.tables.formats.delta import DeltaStore
from spark_sink.sinks.tables.table_faults import is_missing


class DeltaVersions(Versions):
    """Versions of Delta."""

    def __init__(self, spark: SparkSession, store: DeltaStore) -> None:
        self._spark = spark
        self._store = store

    def compact(self, name: str) -> None:
        """By OPTIMIZE."""
        self._spark.sql(f"OPTIMIZE {self._store.target(name)}")

    def _now(self, name: str) -> int | None:
        try:
            known = self._store.known_folder(name)
            version = self._version(known)
            if version < 0 and (folder := self._store.folder(name)) != known:  # it was dropped, and created elsewhere
                version = self._version(folder)
        except AnalysisException as error:
            if not is_missing(error):
                raise
            return None
        return version if version >= 0 else None

    def _version(self, folder: str) -> int:
        return int(self._store.snapshot(folder).version())
