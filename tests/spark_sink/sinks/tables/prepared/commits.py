"""Commits of two consumers to a table of Iceberg."""

from pathlib import Path

from pyspark.sql import SparkSession

from spark_sink.sinks.tables.config import TableOptions
from spark_sink.sinks.tables.formats.iceberg import IcebergStore


class Commits:
    """An empty table of Iceberg, and commits to it without rows: only properties of snapshots."""

    def __init__(self, lake: SparkSession, path: Path) -> None:
        options = TableOptions("iceberg", str(path), None, "append", "apply")
        self.stores = [IcebergStore(lake, options, f"spanner-cdc.spool.{consumer}") for consumer in ("one", "two")]
        self.lake = lake
        self.name = self.stores[0].target("T")
        lake.sql(f"CREATE TABLE {self.name} (Id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '2')")

    def commit(self, **epochs: int) -> int:
        """Commits, with the epochs of consumers; the snapshot."""
        table = self.stores[0].loaded("T")
        assert table is not None
        made = table.newFastAppend()
        for consumer, epoch in epochs.items():
            made = made.set(f"spanner-cdc.spool.{consumer}", f"{epoch}").set(
                f"spanner-cdc.spool.{consumer}:at", f"at-{epoch}"
            )
        made.commit()
        return int(table.currentSnapshot().snapshotId())

    def current(self) -> int:
        """The current snapshot."""
        table = self.stores[0].loaded("T")
        assert table is not None
        return int(table.currentSnapshot().snapshotId())

    def snapshots(self) -> set[int]:
        """All snapshots that there are."""
        self.lake.sql(f"REFRESH TABLE {self.name}")
        return {row["snapshot_id"] for row in self.lake.table(f"{self.name}.snapshots").collect()}

    def applied(self) -> list[int]:
        """The last epochs of the two consumers, as they are said to be and as the query says."""
        found = [store.applied("T") for store in self.stores]
        assert found == [store._queried("T") for store in self.stores]
        assert all(one.at == (f"at-{one.epoch}" if one.epoch else "") for one in found)
        return [one.epoch for one in found]

    def call(self, procedure: str, arguments: str) -> None:
        self.lake.sql(f"CALL {self.name.partition('.')[0]}.system.{procedure}(table => 'T', {arguments})").collect()
