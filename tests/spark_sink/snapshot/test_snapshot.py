"""`spanner-snapshot` on the official emulator: typed rows as of a timestamp, and filters that select the same rows."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.errors import ConfigurationError
from emulator import SampleDatabase, Workload
from spark_sink.errors import clear_line
from spark_sink.snapshot.options import SnapshotOptions
from tests.integration.servers import databases, emulator

pytestmark = [pytest.mark.spark, pytest.mark.emulator]

__all__ = ["emulator"]

UNTOUCHED = "An unusual \"key\" with 'quotes', \\ and ``"
WHEN = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)
NANOSECONDS = "2024-02-29T12:00:00.123456789Z"


@pytest.fixture(scope="module", params=["googlesql", "postgresql"])
def sample(request: pytest.FixtureRequest, emulator: Any) -> Iterator[SampleDatabase]:
    make = databases(emulator)
    found = next(make)(dialect=request.param)
    Workload(found, seed=5, average_size=8.0).run(mods=300)
    columns = (
        "Id",
        "Int64Value",
        "StringValue",
        "TimestampValue",
        "DateValue",
        "BoolValue",
        "Float64Value",
        "Required",
    )
    rows = [
        (UNTOUCHED, 2**62, UNTOUCHED, NANOSECONDS, "2024-02-29", True, float("nan"), 1),
        ("zzz", None, None, None, None, None, None, 2),
    ]
    with found.database.batch() as batch:
        batch.insert("AllTypes", columns, rows)
        batch.insert("sales.Invoices", ("InvoiceId", "Amount"), [(-(10**9), Decimal("1.5"))])
    yield found
    for _ in make:
        pass


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


def expected(sample: SampleDatabase, sql: str) -> list[Any]:
    with sample.database.snapshot() as snapshot:
        return list(snapshot.execute_sql(sql))


def quoted(sample: SampleDatabase, name: str) -> str:
    mark = "`" if sample.dialect == "googlesql" else '"'
    return ".".join(f"{mark}{part}{mark}" for part in name.split("."))


def test_every_table_has_its_rows_with_typed_columns(spark: SparkSession, sample: SampleDatabase) -> None:
    for table in sample.tables:
        df = load(spark, sample, table.name)
        ids = [column.name for column in table.key]
        columns = ", ".join(quoted(sample, name) for name in ids)
        rows = expected(sample, f"SELECT {columns} FROM {quoted(sample, table.name)}")
        assert df.count() == len(rows)
        assert len(rows) > 0
        names = [column.name for column in table.columns] + ([table.generated[0]] if table.generated else [])
        assert df.columns == names
    types = dict(load(spark, sample, "AllTypes").dtypes)
    numeric = "decimal(38,9)" if sample.dialect == "googlesql" else "string"
    assert [types[f"{kind}Value"] for kind in ("Bool", "Int64", "Float32", "Float64", "Numeric", "Bytes")] == [
        *("boolean", "bigint", "float", "double", numeric, "binary"),
    ]
    assert types["TimestampArray"] == "array<timestamp>"


def test_values_keep_their_digits(spark: SparkSession, sample: SampleDatabase) -> None:
    (row,) = load(spark, sample, "AllTypes").where(F.col("Id") == UNTOUCHED).collect()
    assert (row.Int64Value, row.StringValue, row.BoolValue) == (2**62, UNTOUCHED, True)
    assert row.DateValue == date(2024, 2, 29)
    assert row.TimestampValue.astimezone(UTC) == WHEN
    assert row.Float64Value != row.Float64Value


FILTERS: dict[str, tuple[Callable[[], Column], bool]] = {
    "a string": (lambda: F.col("Id") == UNTOUCHED, True),
    "strings": (lambda: F.col("StringValue").isin("it's", "back\\slash", "a"), False),
    "a number": (lambda: F.col("Int64Value") == 2**62, True),
    "smaller numbers": (lambda: F.col("Int64Value") <= 0, True),
    "no number": (lambda: F.col("Int64Value").isNull(), True),
    "a number that is not another": (lambda: F.col("Required") != 1, True),
    "a boolean": (lambda: F.col("BoolValue") == True, True),  # noqa: E712
    "a later day": (lambda: F.col("DateValue") > F.lit(date(2000, 1, 1)), True),
    "the microsecond": (lambda: F.col("TimestampValue") == F.lit(WHEN), True),
    "not after the microsecond": (lambda: F.col("TimestampValue") <= F.lit(WHEN), True),
    "after the microsecond": (lambda: F.col("TimestampValue") > F.lit(WHEN), True),
    "from the microsecond on": (lambda: F.col("TimestampValue") >= F.lit(WHEN), True),
    "before the microsecond": (lambda: F.col("TimestampValue") < F.lit(WHEN), True),
    "a larger float": (lambda: F.col("Float64Value") > 0.0, False),
    "a null-safe number": (lambda: F.col("Int64Value").eqNullSafe(2**62), True),
    "both": (lambda: (F.col("Required") > 0) & F.col("DateValue").isNotNull(), True),
    "either": (lambda: (F.col("Required") > 0) | F.col("DateValue").isNull(), False),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_selects_the_same_rows_in_spanner_as_in_spark(
    spark: SparkSession, sample: SampleDatabase, name: str
) -> None:
    condition, pushed = FILTERS[name]
    df = load(
        spark,
        sample,
        "AllTypes",
        columns="Id,Required,Int64Value,StringValue,BoolValue,DateValue,TimestampValue,Float64Value",
    )
    filtered = df.where(condition())
    plan = filtered._jdf.queryExecution().executedPlan().toString()
    in_spark = spark.createDataFrame(df.collect(), df.schema).where(condition())
    assert sorted(row.Id for row in filtered.collect()) == sorted(row.Id for row in in_spark.collect())
    if pushed:
        assert "Filter " not in plan.replace("PushedFilters", "")


def test_all_actions_on_a_dataframe_read_the_same_rows(spark: SparkSession, sample: SampleDatabase) -> None:
    df = load(spark, sample, "sales.Invoices")
    before = df.count()
    at = df.schema["InvoiceId"].metadata["read_timestamp"]
    with sample.database.batch() as batch:
        batch.insert_or_update("sales.Invoices", ("InvoiceId",), [(10**9,)])
    assert df.count() == before
    assert load(spark, sample, "sales.Invoices").count() == before + 1
    assert load(spark, sample, "sales.Invoices", readTimestamp=at, enableDataboost="false").count() == before
    with sample.database.batch() as batch:
        batch.delete("sales.Invoices", __import__("google.cloud.spanner", fromlist=["KeySet"]).KeySet(keys=[(10**9,)]))


def test_a_missing_table_or_column_is_one_clear_line(spark: SparkSession, sample: SampleDatabase) -> None:
    for table, more in (("Missing", {}), ("Order", {"columns": "Group,Missing"})):
        with pytest.raises(PySparkException) as caught:
            load(spark, sample, table, **more)
        assert clear_line(caught.value).startswith(f"cannot read table {table} as of 2")


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
    for part in (
        "colums",
        "instanceId, databaseId is missing",
        "names a more than once",
        "'yesterday'",
        "'maybe'",
        "'urgent'",
    ):
        assert part in str(caught.value)
