"""Tables in two namespaces of a catalog: created, widened, merged, repaired by a second writer, and appended to."""

from pathlib import Path

from pyspark.sql import SparkSession

import spark_sink
from connector.core.records import ColumnType
from connector.core.timestamps import SECOND
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import Format, TableOptions
from spark_sink.sinks.tables.formats.databases import missing_database
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.sinks.tables.changes import NAME, change
from tests.spark_sink.sinks.tables.reading import epochs, sealed
from tests.spark_sink.sinks.tables.repairs.sealing import sealed_repair
from tests.spark_sink.spools import KEY, START, SpoolMaker, record

AGE = ColumnType("Age", '{"code":"INT64"}', False, 3)
WIDE = (KEY, NAME, AGE)


def rows(spark: SparkSession, table: str) -> list[tuple[object, ...]]:
    """The rows of a table with the columns :data:`WIDE`."""
    spark.sql(f"REFRESH TABLE {table}")
    return sorted(tuple(row) for row in spark.table(table).select("Id", "Name", "Age").collect())


def use_two_namespaces(lake: SparkSession, of_format: Format, catalog: str, folder: Path) -> None:
    """Uses ``operas`` and ``films`` of a catalog, or of the session's own if ``catalog`` is empty.

    The second writer of a table is a repair, as a backfill is.
    """
    operas, films = (f"{catalog}.{name}".lstrip(".") for name in ("operas", "films"))
    for namespace in (operas, films):
        assert missing_database(lake, namespace, of_format) != []
        lake.sql(f"CREATE NAMESPACE {namespace}")
        assert missing_database(lake, namespace, of_format) == []
    maker = SpoolMaker(folder / "spool")
    merging = TableOptions(of_format, None, operas, "merge", "apply")
    stream = TablesWriter(Feed.at(maker.path), merging, "tables")
    at, later, table = START + 5 * SECOND, {"Name": "later", "Age": "7"}, f"{operas}.Singers"
    maker.seal(change(1, [1, 2, 3]))
    stream.write(epochs(lake, maker, 1, 1))
    maker.seal(
        record(at + SECOND, [2], columns=WIDE, values=dict(later), mod_type="UPDATE"),
        record(at + SECOND, [3], mod_type="DELETE", sequence=1),
    )
    own = sealed_repair(maker, at, {1: "right", 2: "right"}, [100])
    stream.write(epochs(lake, maker, 2, 2))
    TablesWriter(Feed(own, maker.spool), merging, "tables").write(sealed(lake, own, 1, 2), of_backfill=True)
    assert rows(lake, table) == [(1, "right", None), (2, "later", 7)]
    maker.seal(record(at + 2 * SECOND, [4], columns=WIDE, values=dict(later)))
    stream.write(epochs(lake, maker, 2, 3))  # the second one is repeated
    assert rows(lake, table) == [(1, "right", None), (2, "later", 7), (4, "later", 7)]
    spark_sink.merge_into(epochs(lake, maker, 1, 3), format=of_format, database=films, mode="append")
    assert len(rows(lake, f"{films}.Singers")) == 6
