"""Tables whose schemas change, and commits that meet others."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

import spark_sink
from connector.core.records import ColumnType, DataChangeRecord
from connector.core.timestamps import SECOND
from connector.errors import ConfigurationError
from spark_sink.errors import TableError
from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.formats.iceberg import catalog_options
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sinks.tables.table_faults import refused, tried
from tests.retried import noted_causes, still_retried
from tests.spark_sink.sinks.tables.reading import epochs, target
from tests.spark_sink.spools import KEY, START, SpoolMaker, record

NAME, BIO = ColumnType("Name", '{"code":"STRING"}', False, 2), ColumnType("Bio", '{"code":"STRING"}', False, 3)


def change(
    at: int, keys: list[int], mod_type: str, columns: tuple[ColumnType, ...], **values: object
) -> DataChangeRecord:
    made = record(START + at * SECOND, keys, columns=columns, values=values, mod_type=mod_type)
    return replace(made, value_capture_type="NEW_ROW")


@pytest.mark.long
def test_commits_to_one_table_at_the_same_time_are_all_there(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """As a backfill's beside the stream's are: the second of two commits is tried again."""
    path = str(tmp_path / "lake")
    spools = [SpoolMaker(tmp_path / name) for name in ("one", "other")]
    for number, spool in enumerate(spools):
        for epoch in range(2):
            keys = [100 * number + 10 * epoch + key for key in range(5)]
            spool.seal(change(1 + epoch, keys, "INSERT", (KEY, NAME), Name=f"of {number}"))

    def merge(number: int) -> None:
        session = lake.newSession()
        spark_sink.register(session)
        for epoch in range(1, 3):
            spark_sink.merge_into(
                epochs(session, spools[number], epoch, epoch), path=path, format=merging_format, consumer=f"c{number}"
            )

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(merge, range(2)))
    for name, value in catalog_options(path).items() if merging_format == "iceberg" else ():
        lake.conf.set(name, value)
    assert lake.table(target(tmp_path / "lake", merging_format)).count() == 20


@pytest.mark.long
def test_a_column_that_a_narrowed_change_stream_omits_is_left_as_it_is(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(change(1, [1, 2], "INSERT", (KEY, NAME, BIO), Name="a", Bio="bio"))
    spool.seal(change(2, [1], "UPDATE", (KEY, NAME), Name="b"))
    for epoch in (1, 2):
        spark_sink.merge_into(epochs(lake, spool, epoch, epoch), path=str(tmp_path / "lake"), format=merging_format)
    table = target(tmp_path / "lake", merging_format)
    found = {row["Id"]: (row["Name"], row["Bio"]) for row in lake.table(table).collect()}
    assert found == {1: ("b", "bio"), 2: ("a", "bio")}


@pytest.mark.long(but=3)
@pytest.mark.parametrize("captured", ["NEW_ROW", "NEW_VALUES"])
@pytest.mark.skipif(spark_version() not in LIBRARIES["iceberg"].versions, reason="needs Iceberg: make test-lakehouse")
def test_columns_of_any_name_have_the_values_of_spanner(lake: SparkSession, tmp_path: Path, captured: str) -> None:
    names = ("_next", "_values", "_last_values", "_since", "_one", "a b")
    columns = (KEY, *(ColumnType(name, '{"code":"STRING"}', False, 2 + at) for at, name in enumerate(names)))
    spool = SpoolMaker(tmp_path / "spool")
    changes = [
        change(1, [1, 2], "INSERT", columns, **{name: f"of {name}" for name in names}),
        change(2, [1], "UPDATE", columns, **dict.fromkeys(names, "new")),
        change(3, [2], "DELETE", columns),
    ]
    spool.seal(*(replace(made, value_capture_type=captured) for made in changes))
    spark_sink.merge_into(
        epochs(lake, spool, 1, 1), path=str(tmp_path / "lake"), format="iceberg", mode="merge", deletes="flag"
    )
    found = {
        row["Id"]: [row[name] for name in names] for row in lake.table(target(tmp_path / "lake", "iceberg")).collect()
    }
    assert found == {1: ["new"] * len(names), 2: [f"of {name}" for name in names]}


def test_two_tables_of_parquet_are_never_one_though_their_changes_come_one_after_the_other(
    lake: SparkSession, tmp_path: Path
) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(record(START + SECOND, [1], table="a.b"))
    spool.seal(record(START + 2 * SECOND, [2], table="a_b"))
    with pytest.raises(ConfigurationError, match=r"tables a\.b and a_b would both be a_b"):
        spark_sink.merge_into(epochs(lake, spool, 1, 1), path=str(tmp_path), format="parquet", mode="append")


@pytest.mark.long
def test_a_column_of_parquet_that_is_added_again_in_another_case_has_its_new_name(
    lake: SparkSession, tmp_path: Path
) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(change(1, [1], "INSERT", (KEY, NAME), Name="a"))
    spool.seal(change(2, [2], "INSERT", (KEY, replace(NAME, name="NAME")), NAME="b"))
    for epoch in (1, 2):
        spark_sink.merge_into(
            epochs(lake, spool, epoch, epoch), path=str(tmp_path / "lake"), format="parquet", mode="append"
        )
    found = lake.read.parquet(str(tmp_path / "lake" / "Singers"))
    assert {(row["Id"], row["NAME"]) for row in found.collect()} == {(1, None), (2, "b")}


def test_a_column_of_parquet_with_the_name_of_one_that_is_added_is_refused(lake: SparkSession, tmp_path: Path) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(change(1, [1], "INSERT", (KEY, replace(NAME, name="_captured")), _captured="a"))
    with pytest.raises(ConfigurationError, match="has a column _captured, which the sink adds itself"):
        spark_sink.merge_into(epochs(lake, spool, 1, 1), path=str(tmp_path), format="parquet", mode="append")


def test_a_commit_that_others_come_before_names_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
    causes = noted_causes(monkeypatch)
    conflicts = [PySparkException("[DELTA_CONCURRENT_APPEND] a file with a value was added")] * 3

    def commit(number: int) -> int:
        if conflicts:
            raise conflicts.pop()
        return number

    assert tried("sales.Invoices", commit, 7) == 7
    assert causes == ["table sales.Invoices cannot be written (others change it at the same time)"] * 3
    assert still_retried() == []


def test_a_table_whose_folder_another_run_is_creating_is_tried_again_before_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
    error = AnalysisException("[DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION] the location is not empty")
    errors = [error] * 3

    def create() -> str:
        if errors:
            raise errors.pop()
        return "created"

    assert tried("Invoices", create) == "created"

    def never() -> None:
        raise error

    with pytest.raises(TableError, match="table Invoices cannot be written to there"), refused("Invoices", "there"):
        tried("Invoices", never)
