"""The source with the envelope ``opencdc``."""

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import spark_sink
from connector.core.position import Position
from connector.core.records import ColumnType
from connector.core.timestamps import SECOND
from connector.envelope.opencdc import OpenCdcWriter
from connector.errors import ConfigurationError
from spark_sink.errors import clear_line
from spark_sink.sources.changes.opencdc_rows import SCHEMA
from tests.connector.envelope.conduit import of_json
from tests.spark_sink.arrow_schemas import arrow_schema_of, documented_columns
from tests.spark_sink.spools import SINGERS, START, SpoolMaker, record

pytestmark = pytest.mark.spark

COLUMNS = (
    *SINGERS,
    ColumnType("Sales", '{"code":"INT64"}', False, 3),
    ColumnType("Extra", '{"code":"JSON"}', False, 4),
)
VALUES: dict[str, object] = {"Name": "é\n", "Sales": str(2**63 - 1), "Extra": '{"a":[1,null]}'}


@pytest.fixture
def filled(spool: SpoolMaker) -> SpoolMaker:
    spool.seal(record(START + 1_001, [1, 2], columns=COLUMNS, values=VALUES))
    spool.seal(
        record(START + 70 * SECOND, [3], table="music.Albums", values={"Name": None}, mod_type="UPDATE"),
        record(START + 71 * SECOND, [1], columns=COLUMNS, mod_type="DELETE", values=VALUES),
    )
    return spool


def load(spark: SparkSession, spool: SpoolMaker, **options: str) -> DataFrame:
    return spark.read.format("spanner-change-stream").options(spool=spool.path, envelope="opencdc", **options).load()


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: Position.from_text(row.position).order)


def as_line(row: Row) -> bytes:
    """A row as `tail` would print it."""
    payload = {name: text and json.loads(text) for name, text in row.payload.asDict().items()}
    return json.dumps(
        {
            "position": row.position,
            "operation": row.operation,
            "metadata": row.metadata,
            "key": json.loads(row.key),
            "payload": payload,
        }
    ).encode()


def test_the_documented_columns_are_those_of_the_records(spark: SparkSession, spool: SpoolMaker) -> None:
    schema = documented_columns("opencdc.md", "position")
    assert arrow_schema_of(schema).equals(SCHEMA)
    assert load(spark, spool).schema.simpleString() == schema.simpleString()


def test_rows_are_the_records_that_tail_prints(spark: SparkSession, filled: SpoolMaker) -> None:
    writer = OpenCdcWriter(filled.spool.schema)
    expected = [
        of_json(line)
        for manifest in filled.spool.manifests(1, 2)
        for file in manifest.files
        for batch in filled.spool.batches(file)
        for line in writer.lines(batch)
    ]
    assert [of_json(as_line(row)) for row in in_order(load(spark, filled).collect())] == expected
    assert [record.operation for record in expected] == ["create", "create", "update", "delete"]


def test_key_and_payload_are_json_and_null_where_there_is_nothing(spark: SparkSession, filled: SpoolMaker) -> None:
    first, _, update, delete = in_order(load(spark, filled).collect())
    after = {"Id": 1, "Name": "é\n", "Sales": str(2**63 - 1), "Extra": {"a": [1, None]}}
    assert (json.loads(first.key), first.payload.before, json.loads(first.payload.after)) == ({"Id": 1}, None, after)
    assert (update.payload.before, json.loads(update.payload.after)) == (None, {"Id": 3, "Name": None})
    assert (json.loads(delete.payload.before), delete.payload.after) == (after, None)
    assert first.metadata["opencdc.collection"] == "Singers"


def test_tables_are_selected_as_with_the_other_envelope(spark: SparkSession, filled: SpoolMaker) -> None:
    (row,) = load(spark, filled, tables="music.*").collect()
    assert row.metadata["opencdc.collection"] == "music.Albums"


@pytest.mark.long
def test_a_stream_returns_each_record_once(spark: SparkSession, spool: SpoolMaker, tmp_path: Path) -> None:
    ids = spool.fill(3, rows=3000)
    found: list[int] = []

    def keep(batch: DataFrame, _: int) -> None:
        found.extend(int(row.id) for row in batch.selectExpr("get_json_object(key, '$.Id') id").collect())

    source = spark.readStream.format("spanner-change-stream").options(spool=spool.path, envelope="OpenCDC")
    writer = source.load().writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    for _ in range(2):
        query = writer.trigger(availableNow=True).foreachBatch(keep).start()
        assert query.awaitTermination(600)
        assert sorted(found) == ids


def test_an_unknown_envelope_is_rejected(spark: SparkSession, spool: SpoolMaker) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("spanner-change-stream").options(spool=spool.path, envelope="debezium").load().collect()
    assert "option envelope is 'debezium', neither datastream nor opencdc" in clear_line(caught.value)


def test_typed_columns_need_the_other_envelope(spark: SparkSession, filled: SpoolMaker) -> None:
    with pytest.raises(ConfigurationError):
        spark_sink.typed(load(spark, filled), "Singers")
