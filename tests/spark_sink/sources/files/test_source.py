"""Files of events, read back through Spark."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from connector.core.records import ColumnType
from connector.core.timestamps import SECOND
from spark_sink.errors import clear_line
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, destination_at
from tests.spark_sink.arrow_schemas import documented_columns
from tests.spark_sink.spools import NO_DEAD_LETTERS, SINGERS, START, SpoolMaker, record

pytestmark = pytest.mark.spark

COLUMNS = (
    *SINGERS,
    ColumnType("Sales", '{"code":"INT64"}', False, 3),
    ColumnType("Extra", '{"code":"JSON"}', False, 4),
    ColumnType("Ratio", '{"code":"FLOAT64"}', False, 5),
)
VALUES: dict[str, object] = {"Name": 'é\n"', "Sales": str(2**63 - 1), "Extra": '{"a":[1,null]}', "Ratio": "NaN"}


def write(
    spool: SpoolMaker, root: Path, *, gzip: bool = False, rotate_bytes: int = 250_000_000, form: str = "jsonl"
) -> list[str]:
    shape = FileOptions(gzip=gzip, rotate_bytes=rotate_bytes, by_minute=True, format=form)
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(root)), shape, NO_DEAD_LETTERS)
    groups = file_groups(spool.spool.manifests(1, spool.spool.latest()), by_minute=True)
    return [file.path for group in groups for file in writer.write(group)]


def load(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    return spark.read.format("datastream-files").options(**options).load(str(path))


def ordered(df: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in df.orderBy("change_sequence_number").collect()]


@pytest.fixture
def filled(spool: SpoolMaker) -> SpoolMaker:
    spool.seal(record(START + 1_001, [1, 2], columns=COLUMNS, values=VALUES))
    spool.seal(
        record(START + 70 * SECOND, [3], table="music.Albums", values={"Name": None}),
        record(START + 71 * SECOND, [1], columns=COLUMNS, mod_type="DELETE", values=VALUES),
    )
    return spool


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("form", "gzipped"), [("jsonl", False), ("jsonl", True), ("avro", False), ("avro", True)])
def test_what_is_read_back_is_what_the_spool_holds(
    spark: SparkSession, filled: SpoolMaker, tmp_path: Path, form: str, gzipped: bool
) -> None:
    files = write(filled, tmp_path / "out", gzip=gzipped, rotate_bytes=600, form=form)
    assert len(files) == 4
    found = ordered(load(spark, tmp_path / "out"))
    held = ordered(spark.read.format("spanner-change-stream").option("spool", filled.path).load())
    for row in held:
        if form == "avro":
            at = row["read_timestamp"]
            row["read_timestamp"] = at.replace(microsecond=at.microsecond // 1000 * 1000)
    apart = ("payload", "before", "epoch")
    assert [{**row, **dict.fromkeys(apart)} for row in found] == [{**row, **dict.fromkeys(apart)} for row in held]
    assert all(row["before"] is row["epoch"] is None for row in found)


def test_a_payload_is_the_text_in_the_file(spark: SparkSession, filled: SpoolMaker, tmp_path: Path) -> None:
    files = write(filled, tmp_path)
    lines = b"".join((tmp_path / file).read_bytes() for file in files).splitlines()
    texts = {json.loads(line)["uuid"]: line.partition(b'"payload":')[2][:-1].decode() for line in lines}
    found = ordered(load(spark, tmp_path))
    assert {row["uuid"]: row["payload"] for row in found} == texts
    assert json.loads(found[0]["payload"]) == {
        "Id": 1,
        "Name": 'é\n"',
        "Sales": 2**63 - 1,
        "Extra": {"a": [1, None]},
        "Ratio": "NaN",
    }


def test_the_columns_are_the_contracts(spark: SparkSession, tmp_path: Path) -> None:
    assert load(spark, tmp_path).schema.simpleString() == documented_columns("spark.md", "stream_name").simpleString()
    assert load(spark, tmp_path).count() == 0


def test_only_wanted_tables_are_read(spark: SparkSession, filled: SpoolMaker, tmp_path: Path) -> None:
    write(filled, tmp_path)
    assert {row["object"] for row in ordered(load(spark, tmp_path, tables="music.*, none"))} == {"music.Albums"}
    assert load(spark, tmp_path, Tables="none").count() == 0


def test_one_file_or_one_tables_folder_can_be_read(spark: SparkSession, filled: SpoolMaker, tmp_path: Path) -> None:
    files = write(filled, tmp_path)
    assert load(spark, tmp_path / files[0]).count() == 2
    assert load(spark, tmp_path / "d_Singers").count() == 3


def test_what_is_hidden_or_no_file_of_events_is_passed_over(
    spark: SparkSession, filled: SpoolMaker, tmp_path: Path
) -> None:
    write(filled, tmp_path)
    (tmp_path / ".hidden").mkdir()
    for name in (".a.jsonl", ".hidden/a.jsonl", ".a.jsonl.0123.tmp", "_SUCCESS", "note.txt", "schema.json"):
        (tmp_path / name).write_text("x")
    assert load(spark, tmp_path).count() == 4


@pytest.mark.long
def test_many_files_are_shared_out_and_each_is_read_once(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    ids = spool.fill(6, rows=3000, step=20 * SECOND)
    write(spool, tmp_path, rotate_bytes=500_000)
    rows = load(spark, tmp_path).selectExpr("get_json_object(payload, '$.Id') id").collect()
    assert sorted(int(row.id) for row in rows) == ids


def complaint(df: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        df.collect()
    return clear_line(caught.value)


def test_every_fault_of_the_options_is_in_one_line(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("datastream-files").options(tabels="x", tables=",").load().collect()
    line = clear_line(caught.value)
    for part in ("unknown option tabels", "path is missing", "tables is empty"):
        assert part in line


def test_a_path_of_another_scheme_is_refused(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, "s3://bucket/a").collect()
    assert "option path: 's3://bucket/a': this version takes a local path or gs://" in clear_line(caught.value)


def test_a_folder_that_is_not_there_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    assert complaint(load(spark, tmp_path / "none")).startswith(f"there are no files at {tmp_path}/none. Give load()")


@pytest.fixture
def first(filled: SpoolMaker, tmp_path: Path) -> Path:
    return tmp_path / "out" / write(filled, tmp_path / "out")[0]


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "line",
    [
        "secret",
        '{"secret":1}',
        "[]",
        '{"a":',
        '{"uuid":1}',
    ],
)
def test_the_error_for_a_line_that_is_not_an_event_has_its_number_and_not_its_text(
    spark: SparkSession, first: Path, line: str
) -> None:
    whole = first.read_bytes()
    first.write_bytes(whole + line.encode() + b"\n")
    said = complaint(load(spark, first))
    assert said == f"cannot read {first}: line 3 is not an event as Datastream writes it"


def test_an_event_with_odd_fields_is_an_error(spark: SparkSession, first: Path) -> None:
    first.write_bytes(first.read_bytes().replace(b'"mod_index":0', b'"mod_index":"secret"'))
    assert complaint(load(spark, first)) == (f"cannot read {first}: it holds events, but not as Datastream writes them")


def test_a_compressed_file_that_is_incomplete_is_an_error(spark: SparkSession, first: Path) -> None:
    cut = first.with_name(first.name + ".gz")
    cut.write_bytes(gzip.compress(first.read_bytes())[:-20])
    assert complaint(load(spark, cut)) == f"cannot read {cut}: it is damaged or incomplete"


def test_files_of_opencdc_records_are_refused(spark: SparkSession, first: Path) -> None:
    other = first.with_name("a.opencdc.jsonl")
    other.write_bytes(b"{}\n")
    assert complaint(load(spark, first.parent)).startswith(f"{other} holds OpenCDC records")
