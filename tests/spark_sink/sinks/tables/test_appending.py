"""A row for each change, appended to tables of Delta and Iceberg, and to Parquet files."""

import random
from collections import defaultdict
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

import spark_sink
from spark_sink.errors import SinkError
from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.formats import folders
from spark_sink.sinks.tables.formats.delta import DeltaStore
from spark_sink.sinks.tables.formats.iceberg import catalog_of
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sinks.tables.merge_into import TablesWriter
from spark_sink.sources.changes.offsets import Offset
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.histories import History
from tests.spark_sink.sinks.tables.reading import epochs, target
from tests.spark_sink.spools import SpoolMaker


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def appending_format(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    if found in LIBRARIES and spark_version() not in LIBRARIES[found].versions:
        pytest.skip(f"there is no library of {found} for Spark {spark_version()}: make test-lakehouse")
    return found


class Appended:
    """A spool, and what was appended of it."""

    def __init__(self, lake: SparkSession, of_format: Format, folder: Path) -> None:
        self._lake = lake
        self._format = of_format
        self._path = folder / "lake"
        self.spool = SpoolMaker(folder / "spool")
        self.history = History(self.spool, random.Random(11))

    def events(self, first: int, last: int) -> DataFrame:
        return epochs(self._lake, self.spool, first, last)

    def append(self, first: int, last: int) -> None:
        spark_sink.merge_into(self.events(first, last), path=str(self._path), format=self._format, mode="append")

    def rows(self) -> list[tuple[str, str]]:
        """The identity of each row, and its values."""
        names = ("_uuid", "_mod_type", "_epoch", "Id", "Name", "Balance", "Tags", "_change_timestamp", "_present")
        return sorted((row["_uuid"], str([row[name] for name in names])) for row in self._table().collect())

    def wanted(self) -> list[tuple[str, str]]:
        typed = spark_sink.typed(self.events(1, self.spool.spool.latest()), "Singers").selectExpr(
            "_uuid", "_change_type", "_epoch", "Id", "Name", "Balance", "Tags",
            "CAST(_commit_timestamp AS TIMESTAMP) AS _commit_timestamp", "_present",
        )  # fmt: skip
        return sorted((row["_uuid"], str(list(row))) for row in typed.collect())

    def _table(self) -> DataFrame:
        if self._format == "iceberg":
            self._lake.sql(f"REFRESH TABLE {catalog_of(str(self._path))}.Singers")
            return self._lake.table(f"{catalog_of(str(self._path))}.Singers")
        return self._lake.read.format(self._format).load(f"{self._path}/Singers")


@pytest.fixture
def appended(lake: SparkSession, appending_format: Format, tmp_path: Path) -> Appended:
    return Appended(lake, appending_format, tmp_path)


def test_each_change_is_appended_once_whatever_is_repeated(appended: Appended) -> None:
    for _ in range(3):
        appended.append(1, appended.history.commit(6))
    appended.append(1, 3)
    rows = appended.rows()
    assert len(rows) == appended.history.changes
    assert rows == appended.wanted()


@pytest.mark.skipif(spark_version() not in LIBRARIES["delta"].versions, reason="needs Delta: make test-lakehouse")
def test_a_table_of_delta_keeps_its_epoch_and_the_users_metadata_though_another_commits_sooner(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, done = SpoolMaker(tmp_path / "spool"), Event()
    append, save = DeltaStore.append, DataFrameWriter.save

    def appending(store: DeltaStore, rows: DataFrame, name: str, first: int, last: Offset) -> None:
        append(store, rows, name, first, last)
        if name == "A":
            done.set()

    def saving(writer: DataFrameWriter, path: str) -> None:
        if path.endswith("/B"):
            assert done.wait(300)
        save(writer, path)

    def append_both() -> list[int]:
        spark_sink.merge_into(epochs(lake, spool, 1, 2), path=tmp_path / "lake", format="delta", mode="append")
        return [lake.table(table).count() for table in tables]

    monkeypatch.setattr(DeltaStore, "append", appending)
    monkeypatch.setattr(DataFrameWriter, "save", saving)
    lake.conf.set("spark.databricks.delta.commitInfo.userMetadata", "the user's own")
    try:
        tables = [target(tmp_path / "lake", "delta", table) for table in "AB"]
        spool.seal(change(1, [1], table="A"), change(1, [1], table="B"))
        spool.seal(change(2, [2], table="A"), change(2, [2], table="B"))
        assert [append_both(), append_both()] == [[2, 2], [2, 2]]
        for table in tables:
            (commit,) = lake.sql(f"DESCRIBE HISTORY {table}").where("operation = 'WRITE'").collect()
            progress, epoch, *others = commit["userMetadata"].split(" ")
            assert (progress[:12], epoch, others[1:]) == ("spanner-cdc.", "2", ["the", "user's", "own"])
    finally:
        lake.conf.unset("spark.databricks.delta.commitInfo.userMetadata")


def test_parquet_files_appear_by_their_commit_alone_and_a_killed_one_is_completed(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is killed before its entry of the commit log, and after it while files are moved."""
    appended = Appended(lake, "parquet", tmp_path)
    appended.append(1, appended.history.commit(6))
    before = appended.rows()
    last = appended.history.commit(6)

    def killed(*_: object) -> None:
        raise SinkError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(folders.SparkFolders, "put", killed)
        with pytest.raises(SinkError, match="killed"):
            appended.append(2, last)
    assert appended.rows() == before
    with monkeypatch.context() as patched:
        patched.setattr(folders.SparkFolders, "move", _killed_after(1, folders.SparkFolders.move))
        with pytest.raises(SinkError, match="killed"):
            appended.append(2, last)
    assert appended.rows() == before, "the entry is there, the file is not"
    appended.append(1, last)
    assert appended.rows() == appended.wanted()


@pytest.mark.long
def test_the_commit_log_of_parquet_is_listed_twice_a_commit_by_as_many_calls_whatever_its_length(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once to prepare the table, and right before it is written: another run may have committed meanwhile."""
    appended = Appended(lake, "parquet", tmp_path)
    assert lake.sparkContext._gateway is not None
    client = lake.sparkContext._gateway._gateway_client
    send, names = client.send_command, folders.SparkFolders.names
    calls: list[str] = []
    listed: dict[int, list[int]] = defaultdict(list)

    def sending(command: str, *args: Any, **options: Any) -> Any:
        if not command.startswith("m\n"):  # what Python has collected is forgotten at any time
            calls.append(command)
        return send(command, *args, **options)

    def listing(self: folders.SparkFolders, folder: str) -> list[str]:
        before = len(calls)
        found = names(self, folder)
        if folder.endswith("_commits"):
            listed[len(found)].append(len(calls) - before)
        return found

    monkeypatch.setattr(client, "send_command", sending)
    monkeypatch.setattr(folders.SparkFolders, "names", listing)
    for _ in range(4):
        last = appended.history.commit(1)
        appended.append(last, last)
    assert {entries: len(of_length) for entries, of_length in listed.items()} == {0: 2, 1: 2, 2: 2, 3: 2}
    assert len({count for entries, of_length in listed.items() if entries for count in of_length}) == 1
    assert appended.rows() == appended.wanted()


def _killed_after(calls: int, function: object) -> object:
    left = [calls]

    def run(*arguments: object) -> object:
        if left[0] == 0:
            raise SinkError("killed")
        left[0] -= 1
        assert callable(function)
        return function(*arguments)

    return run


@pytest.mark.long
def test_parquet_has_the_rows_of_the_counted_epochs_though_a_session_keeps_none(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else epochs that are sealed meanwhile would be in the commit, and appended again by the next one."""
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(change(1, [1]))
    write = TablesWriter._write

    def late(*args: Any) -> Any:
        if spool.spool.latest() == 1:
            spool.seal(change(2, [2]))
        return write(*args)

    def persist(*_: object) -> None:
        raise AnalysisException("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute.")

    monkeypatch.setattr(TablesWriter, "_write", late)
    monkeypatch.setattr(type(lake.range(1)), "persist", persist)
    for _ in range(2):
        events = lake.read.format("spanner-change-stream").option("spool", spool.path).load()
        spark_sink.merge_into(events, path=tmp_path / "lake", format="parquet", mode="append")
    found = lake.read.parquet(str(tmp_path / "lake" / "Singers"))
    assert sorted((row["Id"], row["_epoch"]) for row in found.collect()) == [(1, 1), (2, 2)]
