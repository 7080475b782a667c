"""Settings of a session, and several threads and processes that write."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import spark_sink
from connector.core.records import ColumnType
from connector.errors import ConfigurationError
from spark_sink.errors import SinkError
from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.formats import session
from spark_sink.sinks.tables.formats.iceberg import IcebergStore, catalog_options
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.sinks.tables.changes import NAME, change
from tests.spark_sink.sinks.tables.reading import epochs, target
from tests.spark_sink.spools import KEY, SpoolMaker

AT = ColumnType("At", '{"code":"TIMESTAMP"}', False, 2)
TIMES = ColumnType("Times", '{"code":"ARRAY","array_element_type":{"code":"TIMESTAMP"}}', False, 3)
TIME = "2026-01-01T00:00:00.5Z"


def timestamps_are_instants(lake: SparkSession, of_format: Format, folder: Path) -> None:
    spool = SpoolMaker(folder / "spool")
    spool.seal(change(1, [1], (KEY, AT, TIMES), At=TIME, Times=[TIME]))
    lake.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    lake.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for consumer in ("one", "other"):
            spark_sink.merge_into(
                epochs(lake, spool, 1, 1),
                path=folder / "lake",
                format=of_format,
                mode="append" if of_format == "parquet" else "merge",
                consumer=consumer,
            )
        assert dict(spark_sink.typed(epochs(lake, spool, 1, 1), "Singers").dtypes)["At"] == "timestamp_ntz"
        assert lake.conf.get("spark.sql.timestampType") == "TIMESTAMP_NTZ"
    finally:
        lake.conf.unset("spark.sql.timestampType")
        lake.conf.set("spark.sql.session.timeZone", "UTC")
    files = list((folder / "lake").rglob("Singers/**/*.parquet"))
    assert files
    for file in files:
        column = pq.read_table(file, columns=["At", "Times", "_change_timestamp"])
        assert str(column.schema.field("At").type) == "timestamp[us, tz=UTC]"
        assert str(column.schema.field("_change_timestamp").type) == "timestamp[us, tz=UTC]"
        assert set(column.column("At").cast("int64").to_pylist()) <= {1767225600500000}
        assert "INT96" not in str(pq.ParquetFile(file).schema)


def test_tables_have_instants_in_microseconds_whatever_the_session_says(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    timestamps_are_instants(lake, merging_format, tmp_path)


@pytest.mark.long
def test_parquet_files_have_instants_in_microseconds_whatever_the_session_says(
    lake: SparkSession, tmp_path: Path
) -> None:
    timestamps_are_instants(lake, "parquet", tmp_path)


@pytest.mark.long
def test_two_threads_of_a_session_leave_nothing_set(
    lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PySpark looks for pandas in each thread, and one may meet what the other's failing import has left so far.
    monkeypatch.setitem(sys.modules, "pandas", None)
    spool = SpoolMaker(tmp_path / "spool")
    for at in (1, 2):
        spool.seal(*(change(at, [1], table=table) for table in "AB"))

    def merge(table: str, epoch: int) -> None:
        events = epochs(lake, spool, epoch, epoch).where(f"object = '{table}'")
        spark_sink.merge_into(events, path=tmp_path / "lake", format=merging_format, spool=tmp_path / "spool")

    # Delta's own note of what it committed last
    others = {*catalog_options(str(tmp_path / "lake")), "spark.databricks.delta.lastCommitVersionInSession"}

    def options() -> set[Row]:
        return {row for row in lake.sql("SET").collect() if row["key"] not in others}

    before = options()
    for epoch in (1, 2):
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(merge, "AB", [epoch, epoch]))
    assert options() == before
    for table in "AB":
        assert lake.table(target(tmp_path / "lake", merging_format, table)).count() == 1


def test_options_that_a_copied_session_has_are_not_taken_for_the_users(lake: SparkSession) -> None:
    """Spark copies a session when it starts a query, whoever writes in it meanwhile."""
    options = {
        "spark.databricks.delta.write.txnAppId": "spanner-cdc.x.y",
        "spark.databricks.delta.write.txnVersion": "7",
    }
    for name, value in options.items():
        lake.conf.set(name, value)
    with session.session_options(lake, options):
        assert lake.conf.get("spark.databricks.delta.write.txnVersion") == "7"
    assert [lake.conf.get(name, None) for name in options] == [None, None]


@pytest.mark.long
def test_a_second_run_of_a_query_appends_nothing_twice(
    lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run has committed after this one has read how far the table is."""
    spool = SpoolMaker(tmp_path / "spool")
    for at in (1, 2, 3):
        spool.seal(change(at, [at]))
    write = TablesWriter._append
    ran: list[bool] = []

    def late(*args: Any) -> None:
        if not ran:
            ran.append(True)
            with ThreadPoolExecutor(1) as threads:
                threads.submit(other_run).result()
        write(*args)

    def other_run() -> None:
        other = lake.newSession()
        spark_sink.register(other)
        append(epochs(other, spool, 1, 2))

    def append(events: DataFrame) -> None:
        spark_sink.merge_into(events, path=tmp_path / "lake", format=merging_format, mode="append")

    monkeypatch.setattr(TablesWriter, "_append", late)
    append(epochs(lake, spool, 1, 3))
    table = target(tmp_path / "lake", merging_format)
    lake.sql(f"REFRESH TABLE {table}")
    assert sorted(row["Id"] for row in lake.table(table).collect()) == [1, 2, 3]


@pytest.mark.long
def test_a_second_run_of_a_query_brings_no_row_back_that_the_other_run_has_deleted(
    lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run has committed an INSERT and its DELETE, so that the commit of this one's INSERT is refused."""
    spool = SpoolMaker(tmp_path / "spool")
    for at, key, kind in ((1, 1, "INSERT"), (2, 2, "INSERT"), (3, 2, "DELETE")):
        spool.seal(replace(change(at, [key]), mod_type=kind))
    write = TablesWriter._merge
    ran: list[bool] = []

    def late(*args: Any) -> None:
        if not ran:
            ran.append(True)
            with ThreadPoolExecutor(1) as threads:
                threads.submit(other_run).result()
        write(*args)

    def other_run() -> None:
        other = lake.newSession()
        spark_sink.register(other)
        for epoch in (2, 3):
            merge(epochs(other, spool, epoch, epoch))

    def merge(events: DataFrame) -> None:
        spark_sink.merge_into(events, path=tmp_path / "lake", format=merging_format)

    merge(epochs(lake, spool, 1, 1))
    monkeypatch.setattr(TablesWriter, "_merge", late)
    merge(epochs(lake, spool, 2, 2))
    table = target(tmp_path / "lake", merging_format)
    lake.sql(f"REFRESH TABLE {table}")
    assert [row["Id"] for row in lake.table(table).collect()] == [1]


@pytest.mark.long
@pytest.mark.skipif(spark_version() not in LIBRARIES["iceberg"].versions, reason="needs Iceberg: make test-lakehouse")
def test_a_column_that_another_process_has_added_to_iceberg_is_found(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column may be added before this process looks, or right after."""
    spool = SpoolMaker(tmp_path / "spool")
    path = tmp_path / "lake"

    def add(column: str) -> None:
        """As another process does: past this one's cache."""
        of_jvm = lake._jvm
        conf = lake._jsparkSession.sessionState().newHadoopConf()
        table = of_jvm.org.apache.iceberg.hadoop.HadoopTables(conf).load(f"{path}/Singers")  # type: ignore[union-attr]
        text = getattr(of_jvm.org.apache.iceberg.types, "Types$StringType").get()  # type: ignore[union-attr]
        table.updateSchema().addColumn(column, text).commit()

    def merge(epoch: int) -> None:
        spark_sink.merge_into(epochs(lake, spool, epoch, epoch), path=path, format="iceberg")

    spool.seal(change(1, [1]))
    merge(1)
    columns = (KEY, NAME, *(ColumnType(name, '{"code":"STRING"}', False, 3) for name in ("X", "Y")))
    spool.seal(change(2, [2], columns[:3], Name="n", X="x"))
    add("X")
    merge(2)
    spool.seal(change(3, [3], columns, Name="n", X="x", Y="y"))
    refresh = IcebergStore.refresh

    def late(store: IcebergStore, target_: str) -> None:
        refresh(store, target_)
        monkeypatch.setattr(IcebergStore, "refresh", refresh)
        lake.table(target_).schema  # noqa: B018 - cached from here on
        add("Y")

    monkeypatch.setattr(IcebergStore, "refresh", late)
    merge(3)
    table = target(path, "iceberg")
    assert sorted((row["Id"], row["X"], row["Y"]) for row in lake.table(table).collect()) == [
        (1, None, None),
        (2, "x", None),
        (3, "x", "y"),
    ]


@pytest.mark.long
@pytest.mark.skipif(spark_version() not in LIBRARIES["delta"].versions, reason="needs Delta: make test-lakehouse")
def test_a_micro_batch_like_those_before_it_makes_spark_generate_no_class(lake: SparkSession, tmp_path: Path) -> None:
    """Else the JVM never comes to run optimized code, however long the sink runs."""
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(change(1, [1]))
    of_jvm = lake._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    generated: list[int] = []

    def merge(events: DataFrame, _: int) -> None:
        spark_sink.merge_into(events, path=tmp_path / "lake", format="delta")
        generated.append(of_jvm.METRIC_COMPILATION_TIME().getCount())

    events = lake.readStream.format("spanner-change-stream").option("spool", spool.path).load()
    writer = events.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(merge)
    with session.session_options(lake, {"spark.sql.codegen.factoryMode": "FALLBACK"}):
        query = writer.start()
    try:
        for at in range(2, 6):
            query.processAllAvailable()
            spool.seal(change(at, [at, 1]))
        query.processAllAvailable()
    finally:
        query.stop()
    assert len(generated) == 5
    assert generated[-2] == generated[-1] > 0


@pytest.mark.parametrize("name", ["it's", "a b", "", "-a"])
def test_a_consumer_has_a_name_that_parquet_and_other_tables_can_keep(
    lake: SparkSession, tmp_path: Path, name: str
) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.fill(1)
    with pytest.raises(ConfigurationError, match="a name has up to 100 letters, digits, dots, dashes or underscores"):
        spark_sink.merge_into(
            epochs(lake, spool, 1, 1), path=tmp_path / "lake", format="parquet", mode="append", consumer=name
        )


@pytest.mark.long
def test_a_type_that_changes_in_parquet_files_stops_with_one_line(lake: SparkSession, tmp_path: Path) -> None:
    spool = SpoolMaker(tmp_path / "spool")

    def append(epoch: int) -> None:
        spark_sink.merge_into(
            epochs(lake, spool, epoch, epoch), path=tmp_path / "lake", format="parquet", mode="append"
        )

    spool.seal(change(1, [1], (KEY, ColumnType("V", '{"code":"INT64"}', False, 2)), V="5"))
    append(1)
    spool.seal(change(2, [2], (KEY, NAME), Name="a"))
    append(2)
    spool.seal(change(3, [2], (KEY, ColumnType("V", '{"code":"STRING"}', False, 2)), V="x"))
    with pytest.raises(SinkError, match=r"column V of table Singers is string, but in .* it is bigint"):
        append(3)
    found = lake.read.option("mergeSchema", "true").parquet(str(tmp_path / "lake" / "Singers"))
    assert sorted((row["Id"], row["V"], row["Name"]) for row in found.collect()) == [(1, 5, None), (2, None, "a")]
