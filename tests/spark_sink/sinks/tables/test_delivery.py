"""The sink as a service runs it: whatever is killed, each change is there once."""

import shutil
from pathlib import Path
from zipfile import ZipFile

import orjson
import pyarrow.dataset as ds
import pytest
import yaml

import spark_sink
from connector.config.loading import load
from connector.config.sections import SparkConfig
from connector.core.records import ColumnType
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import ConfigurationError
from connector.spool import consumers
from connector.spool.sink_report import report_of
from spark_sink.sinks.tables import libraries
from spark_sink.sinks.tables.config import TablesConfig
from tests.spark_sink.processes import eventually, program
from tests.spark_sink.sinks.tables.campaign.backfill_ends import HUNDREDS_OF_ROWS
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.spools import KEY, SpoolMaker

SOURCE = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
VALUE = "private-4711"
AGE = ColumnType("Age", '{"code":"INT64"}', False, 2)


def configured(folder: Path, **sink: object) -> Path:
    node = {
        "source": SOURCE,
        "spool": {"path": str(folder / "spool")},
        "sink": {"type": "tables", **sink},
        "spark": {
            "master": "local[2]",
            "checkpoint": str(folder / "checkpoint"),
            "trigger": "100ms",
            "config": {"spark.driver.memory": "768m", **HUNDREDS_OF_ROWS},
        },
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(node))
    return path


def appended_ids(folder: Path) -> list[int]:
    files = [str(path) for path in folder.glob("Singers/*.parquet")]
    return sorted(ds.dataset(files).to_table(columns=["Id"]).column("Id").to_pylist()) if files else []


@pytest.mark.slow
@pytest.mark.spark
def test_each_change_is_appended_to_parquet_once_though_the_sink_is_killed(spool: SpoolMaker, tmp_path: Path) -> None:
    config = str(configured(tmp_path, format="parquet", mode="append", path=str(tmp_path / "lake")))
    ids = spool.fill(4)
    with program(tmp_path / "log0", "-m", "spark_sink", config) as sink:
        eventually(lambda: appended_ids(tmp_path / "lake") or sink.has_ended(), "rows are there", starts=2)
        assert not sink.has_ended(), sink.said()
        sink.kill()
    ids += spool.fill(2, step=SECOND)
    with program(tmp_path / "log1", "-m", "spark_sink", config) as sink:
        eventually(
            lambda: len(appended_ids(tmp_path / "lake")) >= len(ids) or sink.has_ended(), "all is there", starts=3
        )
        sink.end_input()
        assert sink.code() == 0, sink.said()
    assert appended_ids(tmp_path / "lake") == ids
    assert f"goes to parquet tables in {tmp_path / 'lake'}, mode append" in sink.said()


@pytest.mark.slow
@pytest.mark.spark
def test_a_parquet_table_is_rebuilt_from_the_kept_spool_once_the_sink_is_forgotten(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    ids = spool.fill(4)
    high = spool.spool.manifest(1).watermark_high
    for log, start, expected in (("log0", "oldest", ids), ("log1", format_rfc3339(high), ids[5:])):
        config = configured(tmp_path, format="parquet", mode="append", path=str(lake), start=start)
        with program(tmp_path / log, "-m", "spark_sink", str(config)) as sink:
            eventually(lambda: len(appended_ids(lake)) >= len(expected) or sink.has_ended(), "all is there", starts=2)  # noqa: B023
            sink.end_input()
            assert sink.code() == 0, sink.said()
        assert appended_ids(lake) == expected
        consumers.forget(spool.spool, "tables")
        shutil.rmtree(lake, ignore_errors=True)
        shutil.rmtree(tmp_path / "checkpoint")


PARQUET = {"format": "parquet", "path": "/lake", "mode": "append"}
REWRITING = {f"write.{kind}.mode": "copy-on-write" for kind in ("merge", "update", "delete")}


@pytest.mark.parametrize(
    ("sink", "error"),
    [
        ({"format": "delta"}, "sink.path: give either path, a folder for all tables, or database"),
        ({"format": "delta", "path": "/lake", "database": "lake"}, "sink.path: give either path"),
        ({"format": "parquet", "path": "/lake"}, "sink.mode: Parquet files cannot be merged"),
        ({"format": "parquet", "path": "/lake", "mode": "history"}, "sink.mode: Parquet files cannot be merged"),
        ({"path": "/lake", "mode": "history", "deletes": "flag"}, "sink.deletes: mode history has the versions of"),
        ({"format": "delta", "database": "a b"}, "'a b' is not the name of a database"),
        ({"format": "delta", "path": "/lake", "mode": "append", "deletes": "flag"}, "sink.deletes: mode append has"),
        ({"format": "delta", "path": "/lake", "table_properties": {"a'b": "c"}}, "is not the name of a table property"),
        ({"format": "delta", "path": "/lake", "cuts": {"keep": "59s"}}, "sink.cuts.keep: .*less than a minute"),
        (
            {"format": "iceberg", "path": "/lake", "table_properties": {"write.merge.isolation-level": "snapshot"}},
            "could insert a key twice: leave it at serializable",
        ),
        (
            {"format": "iceberg", "path": "/lake", "table_properties": {"format-version": "1"}},
            "sink.table_properties: format-version: version 1 has no merge on read: leave it out, or set write.merge",
        ),
        (
            {"path": "/lake", "mode": "history", "table_properties": {"delta.appendonly": "True"}},
            "sink.table_properties: delta.appendOnly: rows are not merged into such a table: use mode append",
        ),
        ({**PARQUET, "table_properties": {"a": "b"}}, "sink.table_properties: Parquet files have none"),
        ({**PARQUET, "maintenance": "all"}, "sink.maintenance: Parquet files have no versions: leave it out"),
        ({**PARQUET, "cuts": {"keep": "2h"}}, "sink.cuts: Parquet files have no versions: leave it out"),
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(
    tmp_path: Path, sink: dict[str, object], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=error):
        load(configured(tmp_path, **sink))


@pytest.mark.parametrize(
    "sink",
    [
        PARQUET,
        {"format": "iceberg", "path": "/lake", "table_properties": {"format-version": "1", **REWRITING}},
        {"format": "iceberg", "path": "/lake", "mode": "append", "table_properties": {"format-version": "1"}},
        {"path": "/lake", "mode": "append", "table_properties": {"delta.appendOnly": "true"}},
    ],
)
def test_properties_that_go_with_the_mode_are_accepted(tmp_path: Path, sink: dict[str, object]) -> None:
    load(configured(tmp_path, **sink))


def test_a_property_that_is_no_text_is_named_before_anything_is_merged() -> None:
    with pytest.raises(
        ConfigurationError, match=r"table_properties: delta.x: the name and the value of a property are"
    ):
        spark_sink.merge_into(None, path="/lake", table_properties={"delta.x": 10})  # type: ignore[arg-type,dict-item]


def test_spark_gets_the_library_for_its_version_beside_what_the_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "spark_version", lambda: "4.1")
    sink = TablesConfig.model_validate({"format": "iceberg", "path": "/lake"})
    found = libraries.spark_options(
        sink, SparkConfig(config={"spark.jars.packages": "a:b:1", "spark.sql.extensions": "E", "x": "y"})
    )
    assert found["spark.jars.packages"].startswith("a:b:1,org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:")
    assert found["spark.sql.extensions"].startswith("E,org.apache.iceberg")
    assert found["x"] == "y"
    own = {"spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:9.9"}
    assert libraries.spark_options(sink, SparkConfig(config=own))["spark.jars.packages"] == own["spark.jars.packages"]


@pytest.mark.parametrize("of_format", ["delta", "iceberg", "parquet"])
def test_spark_keeps_the_classes_of_all_tables_unless_the_user_says_otherwise(of_format: str) -> None:
    mode = "append" if of_format == "parquet" else "merge"
    sink = TablesConfig.model_validate({"format": of_format, "path": "/lake", "mode": mode})
    kept = "spark.sql.codegen.cache.maxEntries"
    assert libraries.spark_options(sink, SparkConfig())[kept] == "5000"
    assert libraries.spark_options(sink, SparkConfig(config={kept: "300"}))[kept] == "300"


def test_a_spark_without_a_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "spark_version", lambda: "9.9")
    sink = TablesConfig.model_validate({"format": "delta", "path": "/lake"})
    assert "there is no library of delta for Spark 9.9 yet: install PySpark 4.0, 4.1, 4.2" in libraries.missing_library(
        sink, {}
    )
    assert not libraries.missing_library(sink, {"spark.jars.packages": "io.delta:delta-spark_9.9_2.13:5.0.0"})
    assert not libraries.missing_library(TablesConfig.model_validate({"format": "parquet", "path": "/lake"}), {})


@pytest.mark.long
@pytest.mark.spark
def test_the_sink_does_not_start_with_tables_in_a_catalog_in_memory(spool: SpoolMaker, tmp_path: Path) -> None:
    """A restarted one would not find them. What is in the jar does not matter: the catalog's options decide it."""
    spool.fill(1)
    jar = tmp_path / "delta-spark.jar"
    with ZipFile(jar, "w") as made:
        made.writestr("nothing", "")
    config = configured(tmp_path, database="spark_catalog.default")
    node = yaml.safe_load(config.read_text())
    node["spark"]["config"]["spark.jars"] = str(jar)
    config.write_text(yaml.safe_dump(node))
    with program(tmp_path / "log", "-m", "spark_sink", str(config)) as sink:
        eventually(sink.has_ended, "it ends", starts=2)
        assert sink.code() == ConfigurationError.exit_code, sink.said()
    assert (
        "sink.database: spark_catalog.default is in Spark's own catalog, which is in memory: configure a metastore"
        in sink.said()
    )


@pytest.mark.long
@pytest.mark.spark
def test_a_value_that_parquet_cannot_take_is_printed_nowhere_and_makes_a_dead_letter(
    spool: SpoolMaker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spool.seal(change(1, [1], (KEY, AGE), table="Persons", Age=VALUE), change(1, [1]))
    letters = tmp_path / "letters"
    config = str(
        configured(tmp_path, format="parquet", mode="append", path=str(tmp_path / "lake"), dead_letters=str(letters))
    )
    with program(tmp_path / "log", "-m", "spark_sink", config, "--verbose", "--log-format", "json") as sink:
        eventually(lambda: report_of(spool.spool, "tables").refused or sink.has_ended(), "it is rejected", starts=3)
        sink.end_input()
        code, said = sink.code(), sink.said()
    assert (code, appended_ids(tmp_path / "lake")) == (0, [1]), said
    (delivered,) = [line for line in map(orjson.loads, said.splitlines()) if line.get("action") == "batch_delivered"]
    assert "1 to the dead letters at" in delivered["message"]
    assert "Persons: column Age: the value is no bigint" in delivered["message"]
    assert report_of(spool.spool, "tables").stopped == {}
    with program(tmp_path / "replay", "-m", "spark_sink.dead_letters_command", "replay", config) as replay:
        assert replay.code() == 1, replay.said()
        said += replay.said() + capfd.readouterr().out
    assert "0 dead letters accepted, 1 rejected again" in said
    assert VALUE not in said
    assert "4711" not in said, "nor a part of it"
    beside = [path for path in tmp_path.rglob("*") if path.is_file() and "segments" not in path.parts]
    assert [path.parent.name for path in beside if VALUE.encode() in path.read_bytes()] == ["Persons"]
    assert list((letters / "tables").iterdir()) == [letters / "tables/Persons"]
