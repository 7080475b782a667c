"""Tables of Delta: the last epoch is the version of a ``SetTransaction`` action in the same commit.

See https://docs.delta.io/latest/delta-streaming.html#idempotent-table-writes-in-foreachbatch. Delta itself skips a
commit whose version it has. Without these two options of the session, only an append could have them.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from pyspark.sql import DataFrame

from spark_sink.tables.formats.jvm import java_classes, java_session
from spark_sink.tables.formats.store import TableStore, session_options
from spark_sink.tables.lake_table import quoted

_CONFIG = "spark.databricks.delta.write"


class DeltaStore(TableStore):
    """Tables of Delta."""

    provider = "delta"
    before_rename = "after SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name'): "
    copies_source = True
    merged: ClassVar[Mapping[str, str]] = {"delta.enableDeletionVectors": "true"}

    def target(self, name: str) -> str:
        """By its folder, or by its name in the catalog."""
        if self._options.path is None:
            return self._in_database(name)
        return f"delta.{quoted(f'{self._options.path}/{name}')}"

    def applied(self, name: str) -> int:
        """From the state of the table, which keeps the last version of each application."""
        log = java_classes(self._spark).org.apache.spark.sql.delta.DeltaLog
        found = log.forTableWithSnapshot(java_session(self._spark), self._folder(name))
        version = found.productElement(1).transactions().get(self._progress)
        return int(version.get()) if version.isDefined() else 0

    def append(self, rows: DataFrame, name: str, first: int, last: int) -> None:
        """Appends by the names of the columns."""
        del first
        writer = rows.write.format("delta").mode("append")
        with self.committing(last):
            if self._options.path is None:
                writer.saveAsTable(self._in_database(name))
            else:
                writer.save(self._folder(name))

    @contextmanager
    def committing(self, last: int) -> Iterator[None]:
        """By two options of the session."""
        with session_options(self._spark, {f"{_CONFIG}.txnAppId": self._progress, f"{_CONFIG}.txnVersion": str(last)}):
            yield

    def _folder(self, name: str) -> str:
        if self._options.path is not None:
            return f"{self._options.path}/{name}"
        return str(self._spark.sql(f"DESCRIBE DETAIL {self.target(name)}").first()["location"])  # type: ignore[index]
