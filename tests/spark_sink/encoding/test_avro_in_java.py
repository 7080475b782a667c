"""Avro's Java library, which is part of Spark, reads the files."""

from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.core.records import ColumnType
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, destination_at
from tests.spark_sink.spools import KEY, NO_DEAD_LETTERS, START, SpoolMaker, record

pytestmark = pytest.mark.spark

AVRO = "org.apache.spark.sql.avro.AvroFileFormat"
"""The short name ``avro`` needs a package that is not part of PySpark."""

COLUMNS = (
    KEY,
    ColumnType("Price", '{"code":"NUMERIC"}', False, 2),
    ColumnType("At", '{"code":"TIMESTAMP"}', False, 3),
    ColumnType("Born", '{"code":"DATE"}', False, 4),
    ColumnType("Data", '{"code":"BYTES"}', False, 5),
    ColumnType("Tags", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', False, 6),
    ColumnType("Score", '{"code":"FLOAT64"}', False, 7),
    ColumnType("a-b", '{"code":"STRING"}', False, 8),
)
PRICE = "-99999999999999999999999999999.999999999"
VALUES: dict[str, object] = {
    "Price": PRICE,
    "At": "1969-12-31T23:59:59.999999Z",
    "Born": "0001-01-01",
    "Data": "AAEC",
    "Tags": ["a", None],
    "Score": "-Infinity",
    "a-b": "ü" * 100_000,
}


@pytest.mark.parametrize("deflate", [pytest.param(False, marks=pytest.mark.slow), True])
def test_javas_avro_reads_every_type(spark: SparkSession, spool: SpoolMaker, tmp_path: Path, *, deflate: bool) -> None:
    spool.seal(
        record(START + 1, range(300), columns=COLUMNS, values=VALUES),
        record(START + 2, [1], columns=COLUMNS, values=dict.fromkeys(VALUES)),
        record(START + 3, [2], columns=COLUMNS, mod_type="DELETE", values={}),
    )
    shape = FileOptions(gzip=deflate, rotate_bytes=250_000_000, by_minute=True, format="avro")
    (group,) = file_groups(spool.spool.manifests(1, 1), by_minute=True)
    (file,) = FileWriter(spool.spool, spool.spool_id, destination_at(str(tmp_path)), shape, NO_DEAD_LETTERS).write(
        group
    )
    events = spark.read.format(AVRO).load(str(tmp_path / file.path))
    timestamps = [F.col(f"payload.{name}").cast("string").alias(name) for name in ("At", "Born")]
    others = [F.col(f"payload.{name}") for name in ("Id", "Price", "Data", "Tags", "Score", "a_b")]
    rows = events.select("source_metadata.change_type", *timestamps, *others).collect()
    assert len(rows) == 302
    first, null, deleted = rows[0], rows[300], rows[301]
    assert first.Price == Decimal(PRICE)
    assert (bytes(first.Data), first.Tags, first.Score) == (b"\x00\x01\x02", '["a",null]', float("-inf"))
    assert (first.a_b, first.Id) == (VALUES["a-b"], 0)
    assert (first.At, first.Born) == ("1969-12-31 23:59:59.999999", "0001-01-01")
    assert list(null) == ["INSERT", None, None, 1, *[None] * 5]
    assert (deleted.change_type, deleted.Id, deleted.Tags) == ("DELETE", 2, None)
