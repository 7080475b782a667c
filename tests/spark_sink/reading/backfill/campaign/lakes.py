"""Tables of Delta or Iceberg as destinations of the campaign."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from connector.config.sections import SparkConfig
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.formats.iceberg import catalog_of, catalog_options
from spark_sink.sinks.tables.libraries import spark_options
from tests.spark_sink.reading.backfill.campaign.tables import Key, Rows, columns_of, key_columns, tables

_CATALOG = "rest"
_SHORT_LIVES: Mapping[str, Mapping[str, str]] = {
    "delta": {},
    "iceberg": {"history.expire.max-snapshot-age-ms": "60000"},
}
"""Properties of tables whose old versions go soon; those of Delta stay an hour at least."""

_ADDED = {"added-data-files", "added-delete-files", "deleted-data-files"}
"""A property of a snapshot that changes rows."""


def _rest_options(address: str) -> dict[str, str]:
    catalog = f"spark.sql.catalog.{_CATALOG}"
    return {catalog: "org.apache.iceberg.spark.SparkCatalog", f"{catalog}.type": "rest", f"{catalog}.uri": address}


class LakeTables:
    """Tables below a folder, read by a session of their own.

    Args:
        of_format: ``delta`` or ``iceberg``.
        captures: the value capture type of the change stream.
        names: of the tables.
        rest: the address of a REST catalog that has the tables, of Iceberg; None if they are below the folder.
    """

    is_merged = False  # a second Spark that looks all the time would take the cores: commits are compared in the end

    def __init__(
        self, of_format: str, folder: Path, captures: str, names: Sequence[str] = (), rest: str | None = None
    ) -> None:
        self.captures = captures
        self.spark_config = {} if rest is None else _rest_options(rest)
        self._format = of_format
        self._tables = names or tables()
        self._folder = folder
        builder = SparkSession.builder.master("local[1]").appName("reader")
        sink = TablesConfig.model_validate({"format": of_format, "path": str(folder)})
        options = spark_options(sink, SparkConfig(config={"spark.driver.memory": "768m"}))
        if of_format == "iceberg":
            self._place = f"{_CATALOG}.campaign" if rest else catalog_of(str(folder))
            options |= self.spark_config or catalog_options(str(folder))
            options[f"spark.sql.catalog.{self._place.partition('.')[0]}.cache-enabled"] = "false"
        options |= {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}
        for name, value in options.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        if rest:
            self._spark.sql(f"CREATE NAMESPACE {self._place}")

    def sink(self) -> dict[str, object]:
        """The section ``sink``: what no cut needs is removed after a minute, or as soon as the format allows it."""
        place = {"database": self._place} if self.spark_config else {"path": str(self._folder)}
        return {
            "type": "tables",
            "format": self._format,
            **place,
            "cuts": {"keep": "1m"},
            "table_properties": _SHORT_LIVES[self._format],
        }

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

    def maintained(self) -> str:
        """A line with the commits that the tables still have, and how many of them are compactions."""
        compactions = commits = 0
        for table in self._tables:
            if self._format == "delta":
                found = self._spark.sql(f"DESCRIBE HISTORY {self._target(table)}").collect()
                compactions += sum(row["operation"] == "OPTIMIZE" for row in found)
            else:
                found = self._spark.sql(f"SELECT * FROM {self._target(table)}.snapshots").collect()
                compactions += sum(row["operation"] == "replace" for row in found)
            commits += len(found)
        return f"of {commits} commits that the tables still have {compactions} are compactions"

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
            if row["operation"] == "replace" or not _ADDED & row["summary"].keys():
                continue  # a compaction's has the last epochs of all, as has the empty one before others expire
            for name, value in row["summary"].items():
                if name.startswith("spanner-cdc.") and not name.endswith(":at"):  # the epoch, not its identity
                    yield name, int(value), row["snapshot_id"]

    def _selected(self, table: str, columns: tuple[str, ...], version: str = "") -> list[tuple[Any, ...]]:
        names = ", ".join(f"`{name}`" for name in columns)
        target = self._target(table)
        self._spark.sql(f"REFRESH TABLE {target}")
        return list(self._spark.sql(f"SELECT {names} FROM {target} {version} WHERE NOT _is_deleted").collect())

    def _target(self, table: str) -> str:
        return f"delta.`{self._folder}/{table}`" if self._format == "delta" else f"{self._place}.{table}"
