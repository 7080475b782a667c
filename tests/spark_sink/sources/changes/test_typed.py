"""A table's rows with typed columns."""

import base64
import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

import spark_sink
from connector.core.records import ColumnType
from connector.errors import ConfigurationError
from spark_sink.sources.changes.known_tables import KnownTables, type_name
from spark_sink.sources.changes.typed import typed_as
from tests.spark_sink.spools import KEY, NAME, START, SpoolMaker, record

pytestmark = pytest.mark.spark

DATA = b"\x00\xff bytes"
BASE64 = base64.b64encode(DATA).decode()
TIMESTAMP = dt.datetime(2026, 1, 31, 12, 0, 0, 123456)  # noqa: DTZ001  the session's zone is UTC

CORRUPT_RECORD = "spark.sql.columnNameOfCorruptRecord"

SCALARS = {
    "BOOL": ('{"code":"BOOL"}', True, "boolean", True),
    "INT64": ('{"code":"INT64"}', "-9223372036854775808", "bigint", -(2**63)),
    "ENUM": ('{"code":"ENUM","proto_type_fqn":"a.B"}', "3", "bigint", 3),
    "FLOAT32": ('{"code":"FLOAT32"}', 1.5, "float", 1.5),
    "FLOAT64": ('{"code":"FLOAT64"}', 0.1, "double", 0.1),
    "INFINITE": ('{"code":"FLOAT64"}', "-Infinity", "double", -math.inf),
    "NUMERIC": (
        '{"code":"NUMERIC"}',
        "99999999999999999999999999999.999999999",
        "decimal(38,9)",
        Decimal("99999999999999999999999999999.999999999"),
    ),
    "PG_NUMERIC": ('{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}', "NaN", "string", "NaN"),
    "STRING": ('{"code":"STRING"}', 'a "b" \n ü 𝄞', "string", 'a "b" \n ü 𝄞'),
    "UUID": (
        '{"code":"UUID"}',
        "0b5c7b9e-aaaa-8bbb-8ccc-000000000001",
        "string",
        "0b5c7b9e-aaaa-8bbb-8ccc-000000000001",
    ),
    "INTERVAL": ('{"code":"INTERVAL"}', "P1Y2M3DT4H5M6.5S", "string", "P1Y2M3DT4H5M6.5S"),
    "JSON": ('{"code":"JSON"}', '{"a":[1,null]}', "string", '{"a":[1,null]}'),
    "PG_JSONB": ('{"code":"JSON","type_annotation":"PG_JSONB"}', "[1.50]", "string", "[1.50]"),
    "BYTES": ('{"code":"BYTES"}', BASE64, "binary", DATA),
    "PROTO": ('{"code":"PROTO","proto_type_fqn":"a.B"}', BASE64, "binary", DATA),
    "DATE": ('{"code":"DATE"}', "0001-02-03", "date", dt.date(1, 2, 3)),
    "TIMESTAMP": ('{"code":"TIMESTAMP"}', "2026-01-31T12:00:00.123456789Z", "timestamp", TIMESTAMP),
    "UNKNOWN": ('{"code":"SOMETHING_NEW"}', "as it came", "string", "as it came"),
    "INT64_ARRAY": ('{"array_element_type":{"code":"INT64"},"code":"ARRAY"}', ["1", None], "array<bigint>", [1, None]),
    "FLOAT64_ARRAY": (
        '{"array_element_type":{"code":"FLOAT64"},"code":"ARRAY"}',
        [1.5, "Infinity", None],
        "array<double>",
        [1.5, math.inf, None],
    ),
    "BYTES_ARRAY": (
        '{"array_element_type":{"code":"BYTES"},"code":"ARRAY"}',
        [BASE64, None],
        "array<binary>",
        [DATA, None],
    ),
    "STRING_ARRAY": (
        '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}',
        ["", None],
        "array<string>",
        ["", None],
    ),
}


def columns(types: dict[str, str]) -> tuple[ColumnType, ...]:
    return (KEY, *(ColumnType(name, kind, False, n) for n, (name, kind) in enumerate(types.items(), 2)))


def events(spark: SparkSession, spool: SpoolMaker) -> DataFrame:
    return spark.read.format("spanner-change-stream").option("spool", spool.path).load()


def rows(df: DataFrame) -> list[Row]:
    return sorted(df.collect(), key=lambda row: str(row["_change_sequence_number"]))


def test_every_type_has_its_spark_type_and_value_and_null_stays_null(spark: SparkSession, spool: SpoolMaker) -> None:
    table = columns({name: kind for name, (kind, *_) in SCALARS.items()})
    values: dict[str, object] = {name: value for name, (_, value, *_) in SCALARS.items()}
    spool.seal(
        record(START + 1, [1], columns=table, values=values),
        record(START + 2, [2], columns=table, values=dict.fromkeys(values)),
        record(START + 3, [3], columns=table, values={"FLOAT64": "NaN"}),
    )
    df = spark_sink.typed(events(spark, spool), "Singers")
    types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    assert {name: types[name] for name in SCALARS} == {
        name: spark_type for name, (*_, spark_type, _) in SCALARS.items()
    }
    full, null, part = rows(df)
    for name, (*_, expected) in SCALARS.items():
        value = bytes(full[name]) if isinstance(full[name], bytearray) else full[name]
        assert value == expected, name
        assert null[name] is None
        assert name in null["_present"]
    assert math.isnan(part["FLOAT64"])
    assert part["_present"] == ["Id", "FLOAT64"]


def test_metadata_columns_describe_the_change(spark: SparkSession, spool: SpoolMaker) -> None:
    spool.seal(record(START + 1, [7]), record(START + 2, [7], mod_type="DELETE"), record(START + 3, table="Other"))
    insert, delete = rows(spark_sink.typed(events(spark, spool), "Singers"))
    assert (insert["_change_type"], delete["_change_type"]) == ("INSERT", "DELETE")
    assert (insert["_is_deleted"], delete["_is_deleted"]) == (False, True)
    assert insert["_commit_timestamp"] == "2026-03-01T10:00:00.000000001Z"
    assert (insert["Id"], insert["_epoch"]) == (7, 1)
    assert insert["_uuid"] != delete["_uuid"]


@pytest.mark.parametrize("names", [["a.b", "select", "ä `x`", "UPPER", "with space", "a[0]", "$"]])
def test_any_column_name_works(spark: SparkSession, spool: SpoolMaker, names: list[str]) -> None:
    table = columns(dict.fromkeys(names, '{"code":"INT64"}'))
    spool.seal(record(START + 1, columns=table, values={name: str(n) for n, name in enumerate(names)}))
    (row,) = rows(spark_sink.typed(events(spark, spool), "Singers"))
    assert [row[name] for name in names] == list(range(len(names)))


@pytest.mark.parametrize(
    ("name", "kind", "text", "value"), [("_corrupt_record", "STRING", "a text", "a text"), ("Code", "INT64", "5", 5)]
)
def test_a_column_that_spark_keeps_for_corrupt_records_has_its_value(
    spark: SparkSession, spool: SpoolMaker, name: str, kind: str, text: str, value: object
) -> None:
    spool.seal(record(START + 1, columns=columns({name: f'{{"code":"{kind}"}}'}), values={name: text}))
    spark.conf.set(CORRUPT_RECORD, name)
    try:
        (row,) = rows(spark_sink.typed(events(spark, spool), "Singers"))
    finally:
        spark.conf.unset(CORRUPT_RECORD)
    assert row[name] == value


def test_new_columns_are_null_in_older_rows_and_changed_ones_are_text(spark: SparkSession, spool: SpoolMaker) -> None:
    spool.seal(record(START + 1, columns=columns({"Code": '{"code":"STRING"}'}), values={"Code": "x"}))
    newer = columns({"Code": '{"code":"BYTES"}', "New": '{"code":"INT64"}'})
    spool.seal(record(START + 2, columns=newer, values={"Code": BASE64, "New": "5"}))
    old, new = rows(spark_sink.typed(events(spark, spool), "Singers"))
    assert (old["Code"], old["New"]) == ("x", None)
    assert (new["Code"], new["New"]) == (BASE64, 5)


@pytest.mark.parametrize(
    ("former", "newest", "name"),
    [
        ('{"code":"ENUM","proto_type_fqn":"a.Genre"}', '{"code":"INT64"}', "bigint"),
        ('{"code":"INT64"}', '{"code":"ENUM","proto_type_fqn":"a.Genre"}', "bigint"),
        ('{"code":"BYTES"}', '{"code":"PROTO","proto_type_fqn":"a.B"}', "binary"),
        ('{"code":"PROTO","proto_type_fqn":"a.B"}', '{"code":"PROTO","proto_type_fqn":"a.C"}', "binary"),
    ],
)
def test_a_column_whose_values_have_one_type_in_spark_has_not_changed(
    spool: SpoolMaker, former: str, newest: str, name: str
) -> None:
    for number, of_type in enumerate((newest, former, newest), 1):
        spool.seal(record(START + number, columns=columns({"Code": of_type}), values={"Code": None}))
    known = KnownTables(spool.spool)
    assert known.columns("Singers")["Code"] == newest
    assert type_name(known.columns("Singers")["Code"]) == name
    assert not known.columns("Singers", exact=True)["Code"], "a sink for Spanner has to know"


def test_a_text_in_a_column_of_bytes_is_an_error_and_no_other_bytes(spark: SparkSession, spool: SpoolMaker) -> None:
    types = columns({"Code": '{"code":"BYTES"}', "Codes": '{"array_element_type":{"code":"BYTES"},"code":"ARRAY"}'})
    spool.seal(record(START + 1, columns=types, values={"Code": BASE64, "Codes": [BASE64, None]}))
    (row,) = rows(spark_sink.typed(events(spark, spool), "Singers"))
    assert (row["Code"], row["Codes"]) == (DATA, [DATA, None])
    former = columns({"Code": '{"code":"STRING"}'})
    spool.seal(record(START + 2, columns=former, values={"Code": "no base64, but text"}))
    with pytest.raises(PySparkException, match="CONVERSION_INVALID_INPUT"):
        rows(typed_as(events(spark, spool), "Singers", {"Code": '{"code":"BYTES"}'}))


def test_it_works_on_a_stream_and_after_a_filter(spark: SparkSession, spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(record(START + 1, [1, 2]))
    stream = spark.readStream.format("spanner-change-stream").option("spool", spool.path).load()
    got: list[Row] = []

    def keep(df: DataFrame, batch: int) -> None:
        got.extend(df.collect())

    query = (
        spark_sink.typed(stream.where("epoch > 0").filter("object is not null"), "Singers")
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(keep)
        .start()
    )
    query.awaitTermination()
    assert [row["Id"] for row in got] == [1, 2]


@pytest.mark.long
def test_a_column_that_is_newer_than_the_call_fails_the_query_and_is_there_after_it_is_started_again(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    former = columns({"Name": '{"code":"STRING"}'})
    both = columns({"Name": '{"code":"STRING"}', "Email": '{"code":"STRING"}'})
    spool.seal(record(START + 1, [1], columns=former, values={"Name": "a"}))
    stream = spark.readStream.format("spanner-change-stream").option("spool", spool.path).load()
    got: list[Row] = []

    def run(df: DataFrame) -> None:
        writer = df.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.foreachBatch(lambda batch, number: got.extend(batch.collect())).start().awaitTermination()

    df = spark_sink.typed(stream, "Singers")
    spool.seal(record(START + 2, [2], columns=both, values={"Name": "b"}))
    run(df)
    assert [row["Name"] for row in got] == ["a", "b"], "the newer column has no value"
    spool.seal(record(START + 3, [3], columns=both, values={"Name": "c", "Email": "c@example.com"}))
    with pytest.raises(StreamingQueryException, match=r"newer than this query's call of typed\(\): Email\. Start"):
        run(df)
    run(spark_sink.typed(stream, "Singers"))
    assert [row["Email"] for row in got[2:]] == ["c@example.com"]


@pytest.mark.long
def test_it_works_on_the_rows_of_foreach_batch(spark: SparkSession, spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(record(START + 1, [1, 2]))
    stream = spark.readStream.format("spanner-change-stream").option("spool", spool.path).load()
    got: list[Row] = []
    query = (
        stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(lambda df, batch: got.extend(spark_sink.typed(df, "Singers").collect()))
        .start()
    )
    query.awaitTermination()
    assert [row["Id"] for row in got] == [1, 2]


def test_an_unknown_table_or_spool_is_a_clear_error(
    spark: SparkSession, spool: SpoolMaker, make_spool: Callable[[str], SpoolMaker]
) -> None:
    spool.seal(record(START + 1), record(START + 2, table="T", columns=(KEY, NAME, *columns({"_UUID": NAME.type})[1:])))
    df = events(spark, spool)
    with pytest.raises(ConfigurationError, match=r"has no table Singer \(tables: Singers, T\)"):
        spark_sink.typed(df, "Singer")
    with pytest.raises(ConfigurationError, match="table T has a column _UUID, which typed"):
        spark_sink.typed(df, "T")
    with pytest.raises(ConfigurationError, match="the spool of this DataFrame is not known"):
        spark_sink.typed(spark.range(1), "Singers")
