"""Reading a spool as a stream."""

import json
import time
from pathlib import Path
from typing import Self

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from connector.errors import ConfigurationError
from connector.spool import consumers
from connector.spool.reading import manifest_path
from spark_sink.errors import clear_line
from spark_sink.sources.changes.data_source import EventsBatchReader, EventsPartition, EventsStreamReader
from spark_sink.sources.changes.options import SourceOptions
from spark_sink.sources.changes.read_limits import ADMISSION_CONTROL
from tests.spark_sink.queries import Query
from tests.spark_sink.spools import START, SpoolMaker, record

pytestmark = pytest.mark.spark


def failure(query: Query) -> str:
    """The last line of the error that ends a query."""
    with pytest.raises(PySparkException) as caught:
        query.run()
    return clear_line(caught.value)


def test_events_are_complete_and_in_order_across_restarts(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    written = spool.fill(3)
    query = Query(spark, tmp_path, spool=spool.path)
    query.run()
    written += spool.fill(2)
    query.run()
    assert query.ids() == written
    assert query.batches() == [[1, 2, 3], [4, 5]]


def test_a_running_query_reads_sealed_epochs_and_records_its_progress(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    written = spool.fill(1)
    query = Query(spark, tmp_path, spool=spool.path)
    running = query.start()
    running.processAllAvailable()
    written += spool.fill(2)
    running.processAllAvailable()
    known = consumers.find(spool.spool, "default")
    running.stop()
    assert query.ids() == written
    assert known is not None
    assert known.epoch == 3


@pytest.mark.skipif(not ADMISSION_CONTROL, reason="PySpark before 4.2 does not ask for the newest position")
def test_the_progress_of_a_query_has_its_lag_in_seconds(spark: SparkSession, spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(2)
    running = Query(spark, tmp_path, spool=spool.path).start()
    running.processAllAvailable()
    progress = [one for one in running.recentProgress if one["numInputRows"]][-1]
    running.stop()
    newest = json.loads(progress["sources"][0]["latestOffset"])
    assert newest["epoch"] == 2
    watermark = spool.spool.manifest(2).watermark_high
    assert newest["watermark"] == format_rfc3339(watermark)
    assert 0 <= newest["lag_seconds"] <= (time.time_ns() - watermark) / SECOND


@pytest.mark.long
@pytest.mark.skipif(not ADMISSION_CONTROL, reason="PySpark before 4.2 takes all at once")
def test_max_rows_counts_whole_epochs_and_takes_at_least_one(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    written = spool.fill(2, rows=4) + spool.fill(1, rows=20) + spool.fill(1, rows=1)
    query = Query(spark, tmp_path, spool=spool.path, maxRowsPerTrigger="9")
    query.run()
    assert query.batches() == [[1, 2], [3], [4]]
    assert query.ids() == written


@pytest.mark.long
def test_tables_are_selected_by_patterns_and_empty_micro_batches_work(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    second = 10**9
    spool.seal(record(spool.watermark + second, [1], table="Other"))
    at = spool.watermark + second
    spool.seal(record(at, [2]), record(at + 1, [3], table="Other"), record(at + 2, [4], table="s.Albums"))
    query = Query(spark, tmp_path, spool=spool.path, tables="Sing*, s.*", maxRowsPerTrigger="1")
    query.run()
    assert query.ids() == [2, 4]


def test_each_consumer_reads_everything_and_retains_the_epochs_it_needs(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    written = spool.fill(2)
    one, other = (Query(spark, tmp_path, name, spool=spool.path, consumer=name) for name in ("one", "other"))
    one.run()
    written += spool.fill(1)
    other.run()
    one.run()
    assert one.ids() == other.ids() == written
    assert [consumer.consumer for consumer in consumers.consumers(spool.spool)] == ["one", "other"]


@pytest.mark.long
def test_a_second_query_of_a_consumer_is_rejected_in_one_line(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    spool.fill(1)
    running = Query(spark, tmp_path, spool=spool.path).start()
    running.processAllAvailable()
    line = failure(Query(spark, tmp_path, "second", spool=spool.path))
    running.stop()
    assert "consumer 'default' of the spool" in line
    assert "is in use by another query" in line


@pytest.mark.long
def test_a_new_checkpoint_starts_at_the_oldest_epoch_kept(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    written = spool.fill(3)
    Query(spark, tmp_path, spool=spool.path).run()
    query = Query(spark, tmp_path, "again", spool=spool.path)
    query.run()
    assert query.ids() == written


def test_an_error_about_a_pruned_epoch_is_one_line(spark: SparkSession, spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(2)
    query = Query(spark, tmp_path, spool=spool.path)
    query.run()
    spool.fill(3)
    consumers.record(spool.spool, "default", 4, now=0)
    spool.writer.retention.prune(now=spool.watermark + MINUTE * 9)
    assert failure(query).startswith("epoch 3 is not in the spool at")


@pytest.mark.long
def test_an_error_about_a_corrupt_segment_is_one_line(spark: SparkSession, spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(1)
    (segment,) = (tmp_path / "spool/segments").iterdir()
    segment.write_bytes(segment.read_bytes()[:-9] + b"123456789")
    assert failure(Query(spark, tmp_path, spool=spool.path)).startswith(f"corrupt file {segment}: its checksum")


def test_an_error_about_a_corrupt_manifest_is_one_line(spark: SparkSession, spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(1)
    manifest = tmp_path / "spool" / manifest_path(1)
    manifest.write_bytes(manifest.read_bytes().replace(b'"epoch": 1', b'"epoch": 2'))
    assert failure(Query(spark, tmp_path, spool=spool.path)).startswith(f"corrupt file {manifest}")


@pytest.mark.long
def test_a_checkpoint_of_another_spool_is_rejected(spark: SparkSession, spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(1)
    query = Query(spark, tmp_path, spool=spool.path)
    query.run()
    Path(spool.path).rename(tmp_path / "away")
    SpoolMaker(Path(spool.path)).fill(3)
    assert failure(query).startswith(f"Spark's checkpoint belongs to spool {spool.spool_id}, but at {spool.path} is")


@pytest.mark.long
def test_an_offset_of_a_newer_version_is_rejected(spark: SparkSession, spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(1)
    query = Query(spark, tmp_path, spool=spool.path)
    query.run()
    logged = Path(query.checkpoint) / "offsets/0"
    *head, offset = logged.read_text().splitlines()
    newer = json.dumps({**json.loads(offset), "version": 2})
    logged.write_text("\n".join([*head, newer]))
    (logged.parent / ".0.crc").unlink()
    assert "an offset of version 2, newer than this program's 1" in failure(query)


@pytest.mark.long
def test_a_query_starts_where_the_option_says_and_continues_from_its_checkpoint(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    written = spool.fill(4)
    after = format_rfc3339(spool.spool.manifest(2).watermark_high)
    query = Query(spark, tmp_path, spool=spool.path, start=after)
    query.run()
    assert query.ids() == written[10:]
    written += spool.fill(1)
    query.run()
    assert query.batches() == [[3, 4], [5]]


@pytest.mark.parametrize(
    ("start", "epoch"), [("oldest", 0), ("now", 4), ("-1500ms", 2), ("-0s", 4), ("2026-03-01T10:00:01Z", 1)]
)
def test_a_start_is_the_epoch_that_holds_the_first_commit_after_it(spool: SpoolMaker, start: str, epoch: int) -> None:
    spool.fill(4)
    options = SourceOptions.parse({"spool": spool.path, "start": start})
    assert EventsStreamReader(options, 1).initialOffset()["epoch"] == epoch
    known = consumers.find(spool.spool, "default")
    assert known is not None
    assert known.epoch == epoch
    (read,) = EventsBatchReader(options, 1).partitions() or [EventsPartition(spool.path, (), None)]
    assert isinstance(read, EventsPartition)
    assert len(read.files) == 4 - epoch


class Run(EventsStreamReader):
    """A run of a query; leaving it frees the consumer's name, as the end of its process does."""

    def __init__(self, spool: SpoolMaker, start: str, consumer: str = "default") -> None:
        super().__init__(SourceOptions.parse({"spool": spool.path, "start": start, "consumer": consumer}), 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._claim._held is not None
        self._claim._held.close()


@pytest.mark.parametrize("start", ["now", "-3s"])
def test_a_start_is_the_same_until_the_first_micro_batch_is_done(spool: SpoolMaker, start: str) -> None:
    spool.fill(10)
    with Run(spool, start) as killed:
        first = killed.initialOffset()
        spool.fill(1)
        end = killed.latestOffset(first, killed.getDefaultReadLimit())
        assert killed.initialOffset() == first, "Spark asks twice in the first run"
    for _ in range(2):
        spool.fill(2)
        with Run(spool, start) as again:
            assert again.initialOffset() == first
            (task,) = again.partitions(first, end)
            assert isinstance(task, EventsPartition)
            assert len(task.files) == 11 - int(str(first["epoch"]))
    with Run(spool, start) as again:
        following = again.latestOffset(end, again.getDefaultReadLimit())
    with Run(spool, start) as new:
        assert int(str(new.initialOffset()["epoch"])) >= 12, "a new query of that name starts anew"
    assert following["epoch"] == 15


def test_a_start_is_decided_again_for_another_text_another_consumer_and_one_that_was_forgotten(
    spool: SpoolMaker,
) -> None:
    spool.fill(4)
    starts = []
    for text, consumer in (("now", "default"), ("-1500ms", "default"), ("now", "default"), ("now", "other")):
        with Run(spool, text, consumer) as run:
            starts.append(run.initialOffset()["epoch"])
        spool.fill(1)
    assert starts == [4, 3, 6, 7]
    consumers.forget(spool.spool, "other")
    with Run(spool, "now", "other") as run:
        assert run.initialOffset()["epoch"] == 8


def test_a_start_before_what_is_kept_and_one_that_is_none_are_refused(spool: SpoolMaker) -> None:
    spool.fill(4)
    consumers.record(spool.spool, "files", 3, now=START)
    spool.writer.retention.prune(now=START + 10**13, grace=0)
    reader = EventsStreamReader(SourceOptions.parse({"spool": spool.path, "start": "-1h"}), 1)
    with pytest.raises(ConfigurationError, match=r"option start: -1h asks for .* set option start: "):
        reader.initialOffset()
    assert consumers.find(spool.spool, "default") is None
    with pytest.raises(ConfigurationError, match="option start: 'latest' is not a valid timestamp: write oldest, now"):
        SourceOptions.parse({"spool": spool.path, "start": "latest"})
    in_job = {"projectId": "p", "instanceId": "in", "databaseId": "d", "changeStream": "Everything"}
    with pytest.raises(ConfigurationError, match="with projectId, set startTimestamp"):
        SourceOptions.parse({"spool": spool.path, "start": "now", **in_job})
