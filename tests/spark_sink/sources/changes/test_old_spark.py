"""PySpark 4.0 and 4.1, which pass neither a start nor a limit: each epoch comes once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.spool.sink_start import start_of_sink
from spark_sink.sources.changes import epoch_stream as stream
from spark_sink.sources.changes.data_source import EventsStreamReader
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.options import SourceOptions
from tests.spark_sink.queries import Query
from tests.spark_sink.spools import SpoolMaker

Json = dict[str, object]


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "NEWS_WAIT", 0.0)


class OldSpark:
    """The calls of PySpark 4.0 for a query with the trigger of a processing time; ``checkpoint`` outlives a run."""

    def __init__(self, spool: str, checkpoint: list[Json], **options: str) -> None:
        self.reader = EventsStreamReader(SourceOptions.parse({"spool": spool, **options}), 1)
        self.reader._claim.hold = lambda: None  # type: ignore[method-assign]
        self.checkpoint = checkpoint
        if checkpoint:
            self.reader.partitions(checkpoint[-1], checkpoint[-1])

    def batches(self) -> Iterator[list[int]]:
        """The epochs of each micro-batch until there is no new one."""
        while True:
            end = self.reader.latestOffset()
            if self.checkpoint and end == self.checkpoint[-1]:
                return
            start = self.checkpoint[-1] if self.checkpoint else self.reader.initialOffset()
            self.checkpoint.append(end)
            self.reader.partitions(start, end)
            yield list(range(Offset.from_json(start).epoch + 1, Offset.from_json(end).epoch + 1))


def test_the_first_micro_batch_takes_all_and_later_ones_keep_the_limit(spool: SpoolMaker) -> None:
    spool.fill(3, rows=4)
    query = OldSpark(spool.path, [], maxRowsPerTrigger="4")
    assert list(query.batches()) == [[1, 2, 3]]
    spool.fill(3, rows=4)
    assert list(query.batches()) == [[4], [5], [6]]


def test_a_restarted_query_continues_after_its_checkpoint(spool: SpoolMaker) -> None:
    spool.fill(2)
    checkpoint: list[Json] = []
    assert list(OldSpark(spool.path, checkpoint).batches()) == [[1, 2]]
    assert list(OldSpark(spool.path, checkpoint).batches()) == []
    spool.fill(2)
    assert list(OldSpark(spool.path, checkpoint).batches()) == [[3, 4]]


def test_available_now_asks_before_all_else_and_gets_the_newest_epoch(spool: SpoolMaker) -> None:
    spool.fill(3)
    checkpoint: list[Json] = []
    list(OldSpark(spool.path, checkpoint).batches())
    restarted = OldSpark(spool.path, [], maxRowsPerTrigger="1")
    assert restarted.reader.latestOffset() == checkpoint[-1]  # though the consumer's record may be behind it
    spool.fill(1)
    assert Offset.from_json(OldSpark(spool.path, [], maxRowsPerTrigger="1").reader.latestOffset()).epoch == 4


def test_a_query_of_an_empty_spool_starts_where_its_first_epoch_will_be(spool: SpoolMaker) -> None:
    checkpoint: list[Json] = []
    query = OldSpark(spool.path, checkpoint)
    assert list(query.batches()) == [[]]
    spool.fill(1)
    assert list(query.batches()) == [[1]]


@pytest.mark.parametrize("epochs", [0, 3])
def test_a_query_from_now_on_has_every_epoch_after_the_end_that_is_asked_for_first(
    spool: SpoolMaker, epochs: int
) -> None:
    spool.fill(epochs)
    query = OldSpark(spool.path, [], start="now")
    end = query.reader.latestOffset()
    spool.fill(1)  # the daemon seals an epoch before Spark asks for the start
    start = query.reader.initialOffset()
    assert Offset.from_json(start).epoch == epochs
    assert query.reader.partitions(start, end) == []
    recorded = start_of_sink(spool.spool, "default")
    assert recorded is not None
    assert recorded.after == spool.spool.manifest(epochs + 1).watermark_low
    query.checkpoint.append(end)
    assert list(query.batches()) == [[epochs + 1]]


def test_a_query_from_now_on_that_was_killed_before_its_start_was_decided_continues_after_its_first_end(
    spool: SpoolMaker,
) -> None:
    spool.fill(3)
    end = OldSpark(spool.path, [], start="now").reader.latestOffset()
    spool.fill(2)
    again = OldSpark(spool.path, [], start="now")
    assert again.reader.partitions(again.reader.initialOffset(), end) == []
    again.checkpoint.append(end)
    assert list(again.batches()) == [[4, 5]]


def test_an_error_before_the_position_is_known_is_raised_and_a_later_one_is_no_news(
    spool: SpoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.fill(1)
    query = OldSpark(spool.path, [])
    monkeypatch.setattr(query.reader, "_next", _interrupted)
    with pytest.raises(OSError, match="busy"):
        query.reader.latestOffset()
    known = OldSpark(spool.path, [Offset(0).to_json()])
    known.reader._asked = True  # the first micro-batch of a run may be its last
    monkeypatch.setattr(known.reader, "_next", _interrupted)
    assert known.reader.latestOffset() == Offset(0).to_json()


def _interrupted(*_: object) -> int:
    raise BlockingIOError(11, "busy")


@pytest.mark.long
@pytest.mark.spark
def test_each_epoch_comes_once_over_restarts_of_a_query_with_a_limit(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, spool=spool.path, maxRowsPerTrigger="1")
    written: list[int] = []
    for _ in range(2):
        running = query.start()
        written += spool.fill(2)
        running.processAllAvailable()
        written += spool.fill(2)
        running.processAllAvailable()
        running.stop()
    assert query.ids() == written
