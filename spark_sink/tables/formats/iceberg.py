"""Tables of Iceberg: the last epoch is a property of the snapshot that has it.

See https://iceberg.apache.org/docs/latest/spark-configuration/#write-options. Snapshots that others make, as compaction
does, lie between those of the sink; the newest of its own counts, among the ancestors of the current one. Where all
have expired, the last epoch is not known, and nothing is left out: Spark's checkpoint says what is next.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from spark_sink.tables.config import TableOptions
from spark_sink.tables.formats.store import TableStore, session_options
from spark_sink.tables.lake_table import quoted

_SESSION = "spark.sql.iceberg.snapshot-property"


class IcebergStore(TableStore):
    """Tables of Iceberg; below a folder they are those of a catalog of Hadoop's kind, which needs no service."""

    provider = "iceberg"
    merged: ClassVar[Mapping[str, str]] = {
        "format-version": "2",
        "write.merge.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
    }

    def __init__(self, spark: SparkSession, options: TableOptions, progress: str) -> None:
        super().__init__(spark, options, progress)
        if options.path is not None:
            self._catalog = catalog_of(options.path)
            for name, value in catalog_options(options.path).items():
                spark.conf.set(name, value)

    def target(self, name: str) -> str:
        """By its name in the catalog."""
        if self._options.path is None:
            return self._in_database(name)
        return f"{self._catalog}.{quoted(name)}"

    def applied(self, name: str) -> int:
        """From the table's own history of snapshots."""
        target = self.target(name)
        found = self._spark.sql(
            f"SELECT max(CAST(s.summary['{self._progress}'] AS BIGINT)) AS epoch FROM {target}.history h"
            f" JOIN {target}.snapshots s USING (snapshot_id) WHERE h.is_current_ancestor"
        ).first()
        return int(found["epoch"]) if found is not None and found["epoch"] is not None else 0

    def append(self, rows: DataFrame, name: str, first: int, last: int) -> None:
        """Appends by the names of the columns."""
        del first
        rows.writeTo(self.target(name)).option(f"snapshot-property.{self._progress}", str(last)).append()

    @contextmanager
    def committing(self, last: int) -> Iterator[None]:
        """By an option of the session."""
        with session_options(self._spark, {f"{_SESSION}.{self._progress}": str(last)}):
            yield


def catalog_of(path: str) -> str:
    """The name of the catalog of a folder."""
    return f"spanner_cdc_{blake2b(path.encode(), digest_size=6).hexdigest()}"


def catalog_options(path: str) -> dict[str, str]:
    """The options of a session that make the catalog of a folder."""
    name = f"spark.sql.catalog.{catalog_of(path)}"
    return {name: "org.apache.iceberg.spark.SparkCatalog", f"{name}.type": "hadoop", f"{name}.warehouse": path}
