"""Reading a spool as a batch."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connector.core.timestamps import SECOND
from connector.errors import ConfigurationError, SpoolError
from connector.spool import consumers
from connector.spool.reading import Spool
from spark_sink.errors import clear_line
from spark_sink.sources.changes.data_source import EventsBatchReader
from spark_sink.sources.changes.options import SourceOptions
from tests.spark_sink.spools import SpoolMaker

pytestmark = pytest.mark.spark


def ids(spark: SparkSession, **options: str) -> list[int]:
    df = spark.read.format("spanner-change-stream").options(**options).load()
    rows = df.selectExpr("change_sequence_number s", "get_json_object(payload, '$.Id') id").collect()
    return [int(row.id) for row in sorted(rows, key=lambda row: str(row.s))]


def test_a_batch_reads_all_epochs_and_records_no_progress(spark: SparkSession, spool: SpoolMaker) -> None:
    written = spool.fill(4)
    assert ids(spark, spool=spool.path) == written
    assert consumers.consumers(spool.spool) == []


def test_an_empty_spool_gives_an_empty_batch(spark: SparkSession, spool: SpoolMaker) -> None:
    assert ids(spark, spool=spool.path) == []


def test_option_names_are_case_insensitive(spark: SparkSession, spool: SpoolMaker) -> None:
    assert ids(spark, SPOOL=spool.path, Tables="Sing*") == []


def test_every_error_in_the_options_is_in_one_line(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as caught:
        ids(spark, sqool="x", maxRowsPerTrigger="none", consumer="a/b", instanceId="i")
    line = clear_line(caught.value)
    for part in ("sqool", "spool is missing", "maxRowsPerTrigger", "a/b", "projectId, databaseId, changeStream"):
        assert part in line


@pytest.mark.parametrize("name", ["files", "files.sink", "files.begun"])
def test_a_name_of_the_file_sinks_is_rejected_in_one_line(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option consumer is '{name}', the name of a registered sink: choose"):
        SourceOptions.parse({"spool": "/spool", "consumer": name})
    assert SourceOptions.parse({"spool": "/spool", "consumer": "files-2"}).consumer == "files-2"


def test_an_error_about_a_missing_spool_is_one_line_with_the_command_to_run(
    spark: SparkSession, tmp_path: object
) -> None:
    with pytest.raises(PySparkException) as caught:
        ids(spark, spool=f"{tmp_path}/none")
    assert clear_line(caught.value).startswith(f"there is no spool at {tmp_path}/none. Start the daemon")


def pruned(spool: SpoolMaker, epoch: int) -> None:
    """Prunes every epoch up to one, as the daemon does when its consumers have passed it."""
    consumers.record(spool.spool, "files", epoch, now=spool.watermark)
    assert spool.writer.retention.prune(now=spool.watermark + 120 * SECOND, grace=0)


def test_an_epoch_that_is_pruned_before_its_task_reads_it_is_named_as_that(spool: SpoolMaker) -> None:
    spool.fill(5)
    reader = EventsBatchReader(SourceOptions.parse({"spool": spool.path}), 1)
    tasks = reader.partitions()
    pruned(spool, 3)
    with pytest.raises(SpoolError, match=r"epoch 1 was deleted from the spool at .* before it was read") as caught:
        list(reader.read(tasks[0]))
    assert "set spool.keep" in str(caught.value.hint)
    assert sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task)) == 10


def test_a_batch_is_planned_from_what_is_kept_though_epochs_are_pruned_meanwhile(
    spool: SpoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.fill(5)
    latest = Spool.latest

    def as_it_is_pruned(self: Spool) -> int:
        if self.floor() == 1:
            pruned(spool, 3)
        return latest(self)

    monkeypatch.setattr(Spool, "latest", as_it_is_pruned)
    reader = EventsBatchReader(SourceOptions.parse({"spool": spool.path}), 1)
    rows = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert sum(batch.num_rows for batch in rows) == 10
