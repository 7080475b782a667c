"""The file sink's driver: reports of tasks become documents of minutes, through the publication of cuts."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from connector.config import validated
from connector.core.late_records import LateRecord
from connector.core.timestamps import MINUTE, SECOND
from connector.errors import SpoolError
from connector.spool import consumers
from connector.spool.backfill.documents import BackfillProgress, TableProgress
from connector.spool.backfill.equal_tables import keep_equal
from connector.spool.backfill.records import spool_of, write_progress
from connector.spool.late_store import LateStore
from connector.spool.sink_report import report_of
from spark_sink.publishing import Publication
from spark_sink.sinks.files import delivery as delivery_module
from spark_sink.sinks.files.config import FilesConfig
from spark_sink.sinks.files.delivery import FileDelivery, file_options_of
from spark_sink.sinks.files.plan import FilesRoot
from spark_sink.sinks.files.source import FileSinkReader
from spark_sink.sinks.shared.feed import Feed
from tests.connector.spool.backfill.builders import recorded
from tests.spark_sink.cuts.file_deliveries import documents
from tests.spark_sink.sinks.bigquery.deliveries.runs import SOURCE
from tests.spark_sink.sinks.shared.sink_runs import ROOMY
from tests.spark_sink.spools import START, SpoolMaker, record

SPARK = cast("SparkSession", None)


class Process:
    """The sink's process with Spark's part in it: it plans micro-batches, runs their tasks, and collects reports."""

    def __init__(self, spool: SpoolMaker, root: Path, rotate_interval: str) -> None:
        letters = f"{root}-letters"
        sink = {"type": "files", "path": str(root), "dead_letters": letters, "rotate_interval": rotate_interval}
        config = validated({"source": SOURCE, "spool": {"path": spool.path}, "sink": sink})
        assert isinstance(config.sink, FilesConfig)
        self.delivery = FileDelivery(config, config.sink, Feed.of(config))
        self.publication = Publication(self.delivery)
        options = file_options_of(config, config.sink)
        self._reader = FileSinkReader(Feed.of(config), FilesRoot(str(root), "", letters), options, ROOMY, 2)
        self._at = self._reader.initialOffset()

    def run(self) -> int:
        """Runs what is ready, and publishes; returns how many micro-batches there were."""
        count = 0
        while (end := self._reader.latestOffset(self._at, self._reader.getDefaultReadLimit())) != self._at:
            rows = [
                SimpleNamespace(**row)
                for task in self._reader.partitions(self._at, end)
                for batch in self._reader.read(task)
                for row in batch.to_pylist()
            ]
            self.publication.before_batch()
            self.delivery.run(cast("DataFrame", Collected(rows)))
            self.publication.after_batch(SPARK)
            self._at, count = end, count + 1
        return count

    def close(self) -> None:
        held = self._reader._claim._held
        if held is not None:
            held.close()


class Collected:
    """A micro-batch's rows."""

    def __init__(self, rows: Sequence[SimpleNamespace]) -> None:
        self._rows = rows

    def collect(self) -> Sequence[SimpleNamespace]:
        return self._rows


@pytest.mark.parametrize("rotate_interval", ["60s", "0s"])
def test_a_minute_has_its_document_with_the_micro_batch_that_ends_it(
    spool: SpoolMaker, tmp_path: Path, rotate_interval: str
) -> None:
    root = tmp_path / "out"
    for minute in range(2):
        at = START + minute * MINUTE
        spool.seal(record(at + SECOND, [1, 2]), record(at + 2 * SECOND, [1], table="Albums"))
        spool.seal(record(at + 3 * SECOND, [3]))
        spool.seal(high=at + MINUTE - 1)
    spool.seal(record(START + 2 * MINUTE))
    process = Process(spool, root, rotate_interval)
    assert process.run() >= 1
    found = documents(root)
    assert [name[-2:] for name in found] == ["00", "01"]
    for document in found.values():
        assert {name: table.rows for name, table in document.tables.items()} == {"Albums": 1, "Singers": 3}
        for table in document.tables.values():
            assert table.bytes == sum((root / file).stat().st_size for file in table.files)
    report = report_of(spool.spool, "files")
    assert report.cut is not None
    process.close()
    again = Process(spool, root, rotate_interval)
    assert again.publication._newest(SPARK) == report.cut.epoch, "another process continues there"
    epoch = spool.seal(high=START + 3 * MINUTE - 1)
    again.run()
    again.close()
    consumers.record(spool.spool, "files", epoch, now=START, at=spool.spool.manifest(epoch).identity)
    again.publication.look(SPARK)  # an epoch without events is published while no micro-batch runs
    (*_, last) = documents(root).values()
    assert last.timestamp == START + 3 * MINUTE - 1
    assert last.tables["Singers"].rows == 1


@pytest.mark.parametrize("look", [True, False])
def test_a_minute_has_its_document_although_the_idle_epochs_before_a_restart_are_pruned(
    spool: SpoolMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture, look: bool
) -> None:
    root = tmp_path / "out"
    spool.seal(record(START + SECOND, [1]))
    spool.seal(high=START + MINUTE - 1)
    spool.seal(record(START + MINUTE + 5 * SECOND, [7, 8, 9]))
    process = Process(spool, root, "0s")
    process.run()
    spool.seal(high=START + MINUTE + 30 * SECOND)
    process.run()  # it ends before its next look publishes this epoch
    process.close()
    spool.seal(high=START + 2 * MINUTE - 1)
    spool.seal(record(START + 2 * MINUTE + SECOND, [2]))
    spool.seal(high=START + 3 * MINUTE - 1)
    spool.writer.retention.prune(now=START + 10**13, grace=0)
    assert spool.spool.floor() == 5
    again = Process(spool, root, "0s")
    if look:
        again.publication.look(SPARK)
    again.run()
    again.close()
    assert [document.tables["Singers"].rows for document in documents(root).values()] == [1, 3, 1]
    assert not caplog.records


def test_the_last_look_of_a_run_writes_the_document_of_a_minute_that_ends_idly(
    spool: SpoolMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "out"
    spool.seal(record(START + SECOND, [1]))
    process = Process(spool, root, "0s")
    process.run()
    for high in (START + 30 * SECOND, START + MINUTE - 1):
        spool.seal(high=high)
    process.run()
    process.close()
    spool.writer.retention.prune(now=START + 10**13, grace=0)
    assert spool.spool.floor() == 3
    Publication(process.delivery).complete(SPARK)
    assert [document.tables["Singers"].rows for document in documents(root).values()] == [1]
    assert not caplog.records


def test_a_repeated_micro_batch_knows_what_came_before_it_though_it_was_not_read_at_first(
    spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "out"
    spool.seal(record(START + SECOND, [1]))
    process = Process(spool, root, "0s")
    process.run()
    process.close()

    def unread(*_: object) -> None:
        raise SpoolError("the report cannot be read")

    spool.seal(record(START + 2 * SECOND, [2]))
    again = Process(spool, root, "0s")
    with monkeypatch.context() as patched:
        patched.setattr(delivery_module, "last_delivered", unread)
        with pytest.raises(SpoolError):
            again.run()
    again.run()
    again.close()
    delivered = again.delivery._delivered
    assert (delivered.first, delivered.low, delivered.before) == (2, START + SECOND, 1)


@pytest.mark.parametrize("loss", ["gap", "late"])
def test_a_minute_of_lost_changes_is_incomplete_though_they_are_repaired_before_the_sink_catches_up(
    spool: SpoolMaker, tmp_path: Path, loss: str
) -> None:
    root = tmp_path / "out"
    spool.seal(record(START + SECOND, [1]), record(START + 2 * SECOND, [1], table="Albums"))
    spool.seal(high=START + MINUTE + 9 * SECOND)
    if loss == "gap":
        spool.restart_at(START + 2 * MINUTE + SECOND)
    else:
        spool.seal(record(START + MINUTE + 20 * SECOND, [2]))
        at = START + MINUTE + 10 * SECOND
        LateStore(spool.spool).keep([LateRecord("token", record(at, [99]), at, at, at + SECOND)], now=at)
        spool.seal(high=START + 2 * MINUTE - 1)
    for minute in range(2, 5):
        spool.seal(record(START + minute * MINUTE + 2 * SECOND, [minute]))
        spool.seal(high=START + (minute + 1) * MINUTE - 1)
    keep_equal(spool.spool, "files", ["Singers"], START + 3 * MINUTE + SECOND)
    process = Process(spool, root, "60s")
    process.run()
    process.close()
    of_tables = [[bool(one.tables[name].incomplete) for name in sorted(one.tables)] for one in documents(root).values()]
    albums = loss == "gap"
    assert of_tables == [[False, False], [albums, True], [albums, True], [albums, False], [albums, False]]


def test_minutes_before_the_timestamp_of_a_backfill_are_incomplete_though_it_is_done_before_the_sink_catches_up(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    root = tmp_path / "out"
    spool.seal(record(START + SECOND, [1]))
    spool.restart_at(START + MINUTE + SECOND)
    for minute in range(1, 4):
        spool.seal(record(START + minute * MINUTE + 2 * SECOND, [minute]))
        spool.seal(high=START + (minute + 1) * MINUTE - 1)
    document = recorded(spool.spool, spool.spool.header(), "Singers", at=START + 2 * MINUTE + SECOND)
    own = spool_of(spool.spool, document.number)
    write_progress(own, BackfillProgress(updated=START, tables=(TableProgress(table="Singers", state="done"),)))
    consumers.record(own, "files", 1, now=START)
    process = Process(spool, root, "60s")
    process.run()
    process.close()
    lost, *rest = [document.tables["Singers"].incomplete for document in documents(root).values()]
    assert "were not read" in lost
    assert rest == [lost, "", ""]
