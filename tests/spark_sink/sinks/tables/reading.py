"""Events of a spool, and what tables have."""

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from connector.spool.reading import Spool
from spark_sink.sinks.tables.formats.iceberg import catalog_of
from spark_sink.sinks.tables.rejected.rejected_rows import EVENT_COLUMNS
from spark_sink.sources.changes.event_columns import SPOOL
from tests.spark_sink.sinks.tables.histories import Row
from tests.spark_sink.spools import SpoolMaker


def from_source(lake: SparkSession, spool: SpoolMaker, first: int, last: int) -> DataFrame:
    """The events of some epochs, as users read them."""
    events = lake.read.format("spanner-change-stream").option("spool", spool.path).load()
    return events.where(f"epoch BETWEEN {first} AND {last}")


def epochs(lake: SparkSession, spool: SpoolMaker, first: int, last: int) -> DataFrame:
    """The same without the source, which starts several processes of Python each time; they name their spool, too."""
    return sealed(lake, spool.spool, first, last).withMetadata("payload", {SPOOL: spool.path})


def sealed(lake: SparkSession, spool: Spool, first: int, last: int) -> DataFrame:
    """The events of some epochs, without the source."""
    files = (file for epoch in range(first, last + 1) for file in spool.manifest(epoch).files)
    found = [batch.select(EVENT_COLUMNS) for file in files for batch in spool.batches(file)]
    return lake.createDataFrame(pa.Table.from_batches(found))


def target(path: Path, of_format: str, table: str = "Singers") -> str:
    return f"delta.`{path}/{table}`" if of_format == "delta" else f"{catalog_of(str(path))}.{table}"


def rows_of(lake: SparkSession, table: str, where: str = "NOT _is_deleted") -> dict[int, Row]:
    """The rows by key, with the columns of the table in Spanner."""
    lake.sql(f"REFRESH TABLE {table}")
    found = [row.asDict() for row in lake.table(table).where(where).collect()]
    rows = {row["Id"]: {name: row[name] for name in row if name[0] != "_" and name != "Id"} for row in found}
    assert len(rows) == len(found)
    for row in rows.values():
        row["Balance"] = None if row["Balance"] is None else f"{row['Balance']:.2f}"
    return rows


def commits(lake: SparkSession, table: str, of_format: str) -> int:
    if of_format == "delta":
        return lake.sql(f"DESCRIBE HISTORY {table}").where("operation IN ('MERGE', 'WRITE')").count()
    return lake.table(f"{table}.snapshots").count()
