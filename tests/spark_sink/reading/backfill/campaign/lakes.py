"""Tables of Delta or Iceberg as destinations of the campaign."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from connector.config.sections import SparkConfig
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.formats.iceberg import catalog_of, catalog_options
from spark_sink.sinks.tables.libraries import spark_options
from tests.spark_sink.reading.backfill.campaign.tables import Key, Rows, columns_of, key_columns, tables


class LakeTables:
    """Tables below a folder, read by a session of their own.

    Args:
        of_format: ``delta`` or ``iceberg``.
        captures: the value capture type of the change stream.
        names: of the tables.
    """

    is_merged = False  # a second Spark that looks all the time would take the cores: commits are compared in the end

    def __init__(self, of_format: str, folder: Path, captures: str, names: Sequence[str] = ()) -> None:
        self.captures = captures
        self._format = of_format
        self._tables = names or tables()
        self._folder = folder
        builder = SparkSession.builder.master("local[1]").appName("reader")
        sink = TablesConfig.model_validate({"format": of_format, "path": str(folder)})
        options = spark_options(sink, SparkConfig(config={"spark.driver.memory": "768m"}))
        if of_format == "iceberg":
            options |= catalog_options(str(folder)) | {
                f"spark.sql.catalog.{catalog_of(str(folder))}.cache-enabled": "false"
            }
        options |= {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}
        for name, value in options.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()

    def sink(self) -> dict[str, object]:
        return {"type": "tables", "format": self._format, "path": str(self._folder)}

    def rows(self) -> Rows:
        return {
            (table, tuple(row[:-2])): (row[-2], row[-1])
            for table in self._tables
            for row in self._selected(table, columns_of(table))
        }

    def counts(self, table: str) -> dict[Key, int]:
        raise NotImplementedError

    def faults(self) -> str:
        found = []
        for table in self._tables:
            rows = [tuple(row) for row in self._selected(table, key_columns(table))]
            left = self._spark.sql(f"SELECT 1 FROM {self._target(table)} WHERE _is_deleted").count()
            found += [f"{table}: a key is there more than once"] if len(rows) > len(set(rows)) else []
            found += [f"{table}: {left} deleted rows are left"] if left else []
        return "; ".join(found)

    def commits(self, spool_id: str) -> Iterator[tuple[str, int, Rows]]:
        """A table, the last epoch and the rows after a commit, for some commits after the backfill.

        Fails if the epochs of a table's commits are not in order.
        """
        for table in self._tables:
            found = list(self._commits(table))
            of_stream = [spool_id in name for name, _, _ in found]
            epochs = [epoch for (_, epoch, _), ours in zip(found, of_stream, strict=True) if ours]
            assert epochs == sorted(set(epochs)), f"{table}: {epochs}"
            after = found[max((index for index, ours in enumerate(of_stream) if not ours), default=-1) + 1 :]
            for _, epoch, version in after[-1 :: -max(1, len(after) // 3)]:
                rows = self._selected(table, columns_of(table), f"VERSION AS OF {version}")
                yield table, epoch, {(table, tuple(row[:-2])): (row[-2], row[-1]) for row in rows}

    def close(self) -> None:
        self._spark.stop()

    def _commits(self, table: str) -> Iterator[tuple[str, int, int]]:
        if self._format == "delta":
            for path in sorted((self._folder / table / "_delta_log").glob("*.json")):
                for line in path.read_text().splitlines():
                    if txn := json.loads(line).get("txn"):
                        yield txn["appId"], txn["version"], int(path.stem)
            return
        for row in self._spark.sql(f"SELECT * FROM {self._target(table)}.snapshots ORDER BY committed_at").collect():
            for name, value in row["summary"].items():
                if name.startswith("spanner-cdc.") and not name.endswith(":at"):  # the epoch, not its identity
                    yield name, int(value), row["snapshot_id"]

    def _selected(self, table: str, columns: tuple[str, ...], version: str = "") -> list[tuple[Any, ...]]:
        names = ", ".join(f"`{name}`" for name in columns)
        target = self._target(table)
        self._spark.sql(f"REFRESH TABLE {target}")
        return list(self._spark.sql(f"SELECT {names} FROM {target} {version} WHERE NOT _is_deleted").collect())

    def _target(self, table: str) -> str:
        path = f"{self._folder}/{table}"
        return f"delta.`{path}`" if self._format == "delta" else f"{catalog_of(str(self._folder))}.{table}"
