"""`spanner-snapshot` on the official emulator: typed rows as of a timestamp, filtered by Spanner or by Spark."""

from collections.abc import Iterator
from datetime import UTC, date

import pytest
from google.cloud.spanner import KeySet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, datasource
from pyspark.sql import functions as F  # noqa: N812

from connector.errors import ConfigurationError
from emulator import Emulator, SampleDatabase
from spark_sink.errors import clear_line
from spark_sink.registration import register
from spark_sink.sources.snapshot.options import SnapshotOptions
from spark_sink.sources.snapshot.source import PUSHDOWN
from tests.integration.servers import emulator
from tests.spark_sink.sources.snapshot.samples import ROWS, UNUSUAL, WHEN, sample_databases

pytestmark = [pytest.mark.spark, pytest.mark.emulator]

__all__ = ["emulator"]


@pytest.fixture(scope="module", params=["googlesql", "postgresql"])
def sample(request: pytest.FixtureRequest, emulator: Emulator) -> Iterator[SampleDatabase]:
    yield from sample_databases(emulator, request.param)


def load(spark: SparkSession, sample: SampleDatabase, table: str, **more: str) -> DataFrame:
    options = {
        "projectId": sample.project,
        "instanceId": sample.instance,
        "databaseId": sample.database_id,
        "emulatorHost": sample.host,
        "table": table,
        **more,
    }
    return spark.read.format("spanner-snapshot").options(**options).load()


@pytest.mark.long
def test_rows_have_the_columns_of_the_table_in_sparks_types(spark: SparkSession, sample: SampleDatabase) -> None:
    df = load(spark, sample, "AllTypes")
    types = dict(df.dtypes)
    numeric = "decimal(38,9)" if sample.dialect == "googlesql" else "string"
    assert [types[f"{kind}Value"] for kind in ("Bool", "Int64", "Float32", "Float64", "Numeric", "Bytes", "Json")] == [
        *("boolean", "bigint", "float", "double", numeric, "binary", "string"),
    ]
    assert types["TimestampArray"] == "array<timestamp>"
    rows = {row.Id: row for row in df.collect()}
    with sample.database.snapshot() as snapshot:
        mark = "`" if sample.dialect == "googlesql" else '"'
        assert sorted(rows) == sorted(
            row[0] for row in snapshot.execute_sql(f"SELECT {mark}Id{mark} FROM {mark}AllTypes{mark}")
        )
    row = rows[UNUSUAL]
    assert (row.Int64Value, row.StringValue, row.BoolValue, row.DateValue) == (2**62, UNUSUAL, True, date(2024, 2, 29))
    assert row.TimestampValue.astimezone(UTC) == WHEN
    assert row.Float64Value != row.Float64Value
    assert set(rows["zzz"].asDict().values()) == {"zzz", 2, None}


@pytest.mark.long(but=1)
@pytest.mark.skipif(not hasattr(datasource, "Filter"), reason="PySpark 4.0 pushes no filters to Python sources")
def test_filters_go_to_spanner_or_stay_with_spark(spark: SparkSession, sample: SampleDatabase) -> None:
    df = load(spark, sample, "AllTypes", columns="Float64Value,Id,Required").where(
        (F.col("Required") >= 1) & (F.col("Required") <= 4) & (F.col("Id") == UNUSUAL) & (F.col("Float64Value") > 0)
    )
    assert [tuple(row)[1:] for row in df.collect()] == [(UNUSUAL, 1)]
    plan = df._jdf.queryExecution().executedPlan().toString()
    assert "Float64Value" in plan.partition("Filter (")[2].partition("\n")[0]
    assert "Required" not in plan.partition("Filter (")[2].partition("\n")[0]


@pytest.mark.long
@pytest.mark.parametrize("sample", ["googlesql"], indirect=True)
def test_all_actions_on_a_dataframe_read_the_same_rows(spark: SparkSession, sample: SampleDatabase) -> None:
    df = load(spark, sample, "sales.Invoices", columns="InvoiceId")
    before = sorted(row.InvoiceId for row in df.collect())
    at = df.schema["InvoiceId"].metadata["read_timestamp"]
    with sample.database.batch() as batch:
        batch.insert_or_update("sales.Invoices", ("InvoiceId",), [(10**9,)])
    assert sorted(row.InvoiceId for row in df.collect()) == before
    assert load(spark, sample, "sales.Invoices").count() == len(before) + 1
    assert load(spark, sample, "sales.Invoices", readTimestamp=at).count() == len(before)
    with sample.database.batch() as batch:
        batch.delete("sales.Invoices", KeySet(keys=[[10**9]]))


@pytest.mark.parametrize("sample", ["googlesql"], indirect=True)
def test_a_missing_table_is_one_clear_line(spark: SparkSession, sample: SampleDatabase) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, sample, "Missing")
    assert clear_line(caught.value).startswith("cannot read table Missing as of 2")


@pytest.mark.long
@pytest.mark.parametrize("sample", ["googlesql"], indirect=True)
def test_a_session_that_disables_pushdown_reads_without_it(spark: SparkSession, sample: SampleDatabase) -> None:
    spark.conf.set(PUSHDOWN, "false")
    try:
        register(spark)
        df = (
            load(spark, sample, "AllTypes")
            .where(F.col("Required") <= 4)
            .where(F.col("Id").isin([row[0] for row in ROWS]))
        )
        assert df.count() == len(ROWS)
    finally:
        spark.conf.unset(PUSHDOWN)
        register(spark)
    assert spark.conf.get(PUSHDOWN) == "true"


def test_every_error_in_the_options_is_in_one_line() -> None:
    with pytest.raises(ConfigurationError) as caught:
        SnapshotOptions.parse(
            {
                "projectid": "p",
                "TABLE": "t",
                "colums": "a",
                "columns": "a, b, a",
                "readTimestamp": "yesterday",
                "enableDataboost": "maybe",
                "rpcPriority": "urgent",
            }
        )
    parts = "colums", "instanceId, databaseId is missing", "names a more than", "'yesterday'", "'maybe'", "'urgent'"
    for part in parts:
        assert part in str(caught.value)
