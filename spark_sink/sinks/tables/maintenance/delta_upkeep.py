"""The maintenance of tables of Delta, by OPTIMIZE and VACUUM.

See https://docs.delta.io/latest/optimizations-oss.html and https://docs.delta.io/latest/delta-utility.html. By Delta's
own sizes each OPTIMIZE would write every file again that is smaller than 1 GiB.
"""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from spark_sink.sinks.tables.formats.delta import DeltaStore
from spark_sink.sinks.tables.formats.jvm import java_classes
from spark_sink.sinks.tables.formats.session import session_options
from spark_sink.sinks.tables.lake_table import CUTS
from spark_sink.sinks.tables.maintenance.table_files import TableFiles
from spark_sink.sinks.tables.maintenance.upkeep import Upkeep

_SIZES: Mapping[str, str] = {
    "spark.databricks.delta.optimize.minFileSize": str(64 * 1024 * 1024),
    "spark.databricks.delta.optimize.maxFileSize": str(128 * 1024 * 1024),
}
"""Files of less than the first are made one, of up to the second."""

_VACUUM: Mapping[str, str] = {
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    "spark.databricks.delta.vacuum.logging.enabled": "true",
}
"""Else a VACUUM deletes one file after the other, and there are up to 86,400 of cuts a day; Delta 4.4 goes by the
table's own property alone; and on S3 the table's history, by which removed versions are known, has no VACUUM.
"""

_HOUR = 3_600_000


class DeltaUpkeep(Upkeep):
    """Tables of Delta."""

    def __init__(self, spark: SparkSession, store: DeltaStore) -> None:
        self._spark = spark
        self._store = store

    def files(self, name: str) -> TableFiles:
        """From the newest snapshot; deletion vectors count as files of deletes."""
        snapshot = self._store.snapshot(self._store.folder(name))
        vectors = snapshot.numDeletionVectorsOpt()
        deletes = int(vectors.get()) if vectors.isDefined() else 0
        return TableFiles(int(snapshot.numOfFiles()), int(snapshot.sizeInBytes()), deletes)

    def compact(self, name: str) -> None:
        """By OPTIMIZE, which applies deletion vectors of more than a twentieth of a file, too."""
        with session_options(self._spark, _SIZES):
            self._spark.sql(f"OPTIMIZE {self._store.target(name)}")

    def expire(self, name: str, keep: int, now: int) -> None:
        """By VACUUM, which measures by the clock of its machine; no cut needs a version of the table of cuts."""
        del now
        log = java_classes(self._spark).org.apache.spark.sql.delta.DeltaLog
        own = int(log.tombstoneRetentionMillis(self._store.snapshot(self._store.folder(name)).metadata()))
        hours = -(-(own if name == CUTS else max(own, keep)) // _HOUR)
        with session_options(self._spark, _VACUUM):
            self._spark.sql(f"VACUUM {self._store.target(name)} RETAIN {hours} HOURS")

    def is_created(self, name: str) -> bool:
        """By a property of the table; nobody else creates one of the name of the table of cuts."""
        return self._store.is_created(name) or name == CUTS
