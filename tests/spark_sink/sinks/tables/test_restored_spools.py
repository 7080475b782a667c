"""A spool that was put back from an older copy: other epochs under the numbers that the tables have."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_sink
from connector.errors import SpoolError
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import Format, Mode
from spark_sink.sinks.tables.formats import delta
from spark_sink.sinks.tables.source import TablesReader
from spark_sink.sources.changes.offsets import Offset
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.reading import epochs, target
from tests.spark_sink.spools import SpoolMaker

PARQUET: Format = "parquet"


def restored(folder: Path) -> SpoolMaker:
    """The older copy in the place of the spool, to which other epochs were sealed: 4 and 5 are not in the tables."""
    shutil.rmtree(folder / "spool")
    shutil.move(folder / "backup", folder / "spool")
    spool = SpoolMaker(folder / "spool", reopen=True)
    spool.seal(change(2, [2]), change(3, [3]), change(4, [4]))
    return spool


def delivered(lake: SparkSession, of_format: Format, folder: Path) -> None:
    """Three epochs, and a copy of the spool after the first."""
    spool = SpoolMaker(folder / "spool")
    spool.seal(change(1, [1]))
    shutil.copytree(folder / "spool", folder / "backup")
    for at in (2, 3):
        spool.seal(change(at, [at]))
    merge(lake, spool, 1, 3, of_format, folder)


def merge(
    lake: SparkSession, spool: SpoolMaker, first: int, last: int, of_format: Format, folder: Path, consumer: str = "one"
) -> None:
    mode: Mode = "append" if of_format == "parquet" else "merge"
    spark_sink.merge_into(
        epochs(lake, spool, first, last), path=folder / "lake", format=of_format, mode=mode, consumer=consumer
    )


def ids(lake: SparkSession, of_format: Format, folder: Path) -> list[int]:
    if of_format == "parquet":
        return sorted({row["Id"] for row in lake.read.parquet(str(folder / "lake" / "Singers")).collect()})
    table = target(folder / "lake", of_format)
    lake.sql(f"REFRESH TABLE {table}")
    return sorted(row["Id"] for row in lake.table(table).collect())


def stops_and_continues_under_another_name(lake: SparkSession, of_format: Format, folder: Path) -> None:
    delivered(lake, of_format, folder)
    spool = restored(folder)
    with pytest.raises(SpoolError, match=r"ends with epoch 3, .* is another copy: it ends with epoch 2") as ended:
        merge(lake, spool, 2, 2, of_format, folder)
    assert "use another name (sink.name, or the argument consumer" in str(ended.value.hint)
    spool.seal(change(5, [5]))
    spool.seal(change(6, [6]))
    with pytest.raises(SpoolError, match=r"ends with epoch 3, .* is another copy: its epoch 3 is another"):
        merge(lake, spool, 2, 4, of_format, folder)
    assert ids(lake, of_format, folder) == [1, 2, 3]
    merge(lake, spool, 1, 4, of_format, folder, consumer="one.at")
    assert ids(lake, of_format, folder) == [1, 2, 3, 4, 5, 6]


def test_a_table_never_skips_the_epochs_of_a_spool_that_was_put_back(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    stops_and_continues_under_another_name(lake, merging_format, tmp_path)


@pytest.mark.long
def test_parquet_files_never_lack_the_epochs_of_a_spool_that_was_put_back(lake: SparkSession, tmp_path: Path) -> None:
    stops_and_continues_under_another_name(lake, PARQUET, tmp_path)


@pytest.mark.long
def test_another_process_finds_the_identity_of_the_last_epoch_among_the_commits_of_others(
    lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.conf.set("spark.databricks.delta.commitInfo.userMetadata", "of the user")
    delivered(lake, merging_format, tmp_path)
    assert lake.conf.get("spark.databricks.delta.commitInfo.userMetadata") == "of the user"
    lake.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    for _ in range(3):
        lake.sql(f"DELETE FROM {target(tmp_path / 'lake', merging_format)} WHERE Id = 1")
        lake.sql(f"INSERT INTO {target(tmp_path / 'lake', merging_format)} (Id) VALUES (1)")
    monkeypatch.setattr(delta, "_COMMITTED", {})
    spool = restored(tmp_path)
    spool.seal(change(5, [5]))
    with pytest.raises(SpoolError, match="is another copy: its epoch 3 is another"):
        merge(lake, spool, 2, 3, merging_format, tmp_path)


def test_the_sinks_way_out_of_another_copy_is_another_name(tmp_path: Path) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.fill(3)
    advice = TablesReader(Feed.at(spool.path), "tables", 1).start_over(Offset(2, at=spool.spool.manifest(2).identity))
    assert advice.startswith("name the sink otherwise (sink.name), and `spanner-cdc spool ")
    assert "--forget tables`: what was committed after 2026-03-01T09:59:59.999999999Z up to " in advice
    assert "will be read twice. Merged rows stay right by that" in advice
