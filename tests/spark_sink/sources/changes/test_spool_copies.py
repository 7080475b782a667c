"""A spool or a checkpoint that was restored from an older copy: every loss is reported."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from connector.core.timestamps import MINUTE, SECOND
from connector.errors import SpoolError
from connector.spool import consumers
from connector.spool.reading import Spool
from spark_sink.sinks.bigquery.commit_log import CommitLog
from spark_sink.sources.changes import epoch_stream as stream
from spark_sink.sources.changes.data_source import EventsPartition, EventsStreamReader
from spark_sink.sources.changes.options import SourceOptions
from spark_sink.sources.changes.read_limits import ReadAllAvailable
from tests.spark_sink.sinks.shared.sink_runs import FULL, Checkpoint, Life, ids_of
from tests.spark_sink.spools import START, SpoolMaker, record

Offset = dict[str, object]
ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "NEWS_WAIT", 0.0)


class Reading:
    """The process of a query, with its rows and its position."""

    def __init__(self, path: str) -> None:
        self.reader = EventsStreamReader(SourceOptions.parse({"spool": path}), 1)
        self.reader._claim.hold = lambda: None  # type: ignore[method-assign]

    def run(self, offset: Offset | None = None) -> tuple[list[int], Offset]:
        """Reads everything after the offset, or after that of a new query; returns the ids and the next offset."""
        offset = self.reader.initialOffset() if offset is None else offset
        ids: list[int] = []
        while (end := self.reader.latestOffset(offset, ALL)) != offset:
            ids += self.batch(offset, end)
            offset = end
        return ids, offset

    def batch(self, start: Offset, end: Offset) -> list[int]:
        tasks = self.reader.partitions(start, end)
        batches = [batch for task in tasks for batch in self.reader.read(task) if isinstance(task, EventsPartition)]
        payloads = pa.Table.from_batches(batches).column("payload").to_pylist() if batches else []
        return [int(orjson.loads(payload)["Id"]) for payload in payloads]


class Copies:
    """A spool with an older copy."""

    def __init__(self, folder: Path) -> None:
        self.path, self._copy = folder / "spool", folder / "copy"
        self.maker = SpoolMaker(self.path)
        self._next = 0

    def copy(self) -> None:
        shutil.copytree(self.path, self._copy)

    def put_back(self) -> None:
        """Restores the older copy; a daemon continues from it."""
        shutil.rmtree(self.path)
        shutil.copytree(self._copy, self.path)
        self.maker = SpoolMaker(self.path, reopen=True)

    def seal(self, epochs: int, *, rows: int = 5) -> None:
        """Seals the next records of the same history: one id for each tenth of a second."""
        for _ in range(epochs):
            ids = range((self.maker.watermark - START) * 10 // SECOND + 1, 10**6)[:rows]
            at = [START + key * SECOND // 10 for key in ids]
            self.maker.seal(*(record(time, [key]) for time, key in zip(at, ids, strict=True)))


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    copies = Copies(tmp_path)
    copies.seal(4)
    copies.copy()
    copies.seal(4)
    return copies


def error_line(call: Callable[[], object]) -> str:
    with pytest.raises(SpoolError) as raised:
        call()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_an_offset_says_which_epoch_it_is_of_beside_its_number(copies: Copies) -> None:
    _, offset = Reading(str(copies.path)).run()
    assert list(offset) == ["version", "epoch", "spool", "at"]
    assert offset["at"] == Spool.at(copies.path).manifest(8).identity
    known = consumers.find(Spool.at(copies.path), "default")
    assert known is not None
    assert (known.epoch, known.at) == (8, offset["at"])


def test_a_spool_restored_from_an_older_copy_and_sealed_past_the_checkpoint_is_rejected(copies: Copies) -> None:
    _, offset = Reading(str(copies.path)).run()
    copies.put_back()
    copies.seal(8, rows=7)
    line = error_line(lambda: Reading(str(copies.path)).run(offset))
    assert line.startswith("Spark's checkpoint ends with epoch 8, up to 2026-03-01T10:00:03.900000Z, but the spool at ")
    assert "another copy: its epoch 8 is another, up to 2026-03-01T10:00:04.700000Z. It was put back" in line
    assert (
        "committed after 2026-03-01T09:59:59.999999999Z up to 2026-03-01T10:00:03.900000Z will be read twice." in line
    )


def test_a_new_checkpoint_with_an_older_copy_reads_all_epochs(copies: Copies) -> None:
    first, _ = Reading(str(copies.path)).run()
    copies.put_back()
    copies.seal(8, rows=7)
    again, _ = Reading(str(copies.path)).run()
    assert first == list(range(40))
    assert again == list(range(76))


def test_an_older_copy_is_rejected_even_if_the_epoch_has_the_same_watermark(copies: Copies) -> None:
    _, offset = Reading(str(copies.path)).run()
    copies.put_back()
    copies.seal(4)
    assert "its epoch 8 is another, up to 2026-03-01T10:00:03.900000Z" in error_line(
        lambda: Reading(str(copies.path)).run(offset)
    )


def test_a_checkpoint_that_is_ahead_of_its_spool_is_reported_at_once(copies: Copies) -> None:
    _, offset = Reading(str(copies.path)).run()
    copies.put_back()
    line = error_line(lambda: Reading(str(copies.path)).run(offset))
    assert "ends with epoch 8" in line
    assert "another copy: it ends with epoch 4. It was put back from an older one." in line


def test_a_replayed_micro_batch_of_an_older_copy_is_rejected(copies: Copies) -> None:
    reading = Reading(str(copies.path))
    _, start = reading.run()
    copies.seal(2)
    end = Reading(str(copies.path)).run(start)[1]
    copies.put_back()
    copies.seal(8, rows=7)
    assert "ends with epoch 8" in error_line(lambda: Reading(str(copies.path)).batch(start, end))
    before = {**start, "epoch": 4, "at": Spool.at(copies.path).manifest(4).identity}
    line = error_line(lambda: Reading(str(copies.path)).batch(before, end))
    assert line.startswith("Spark's checkpoint ends with epoch 10, up to 2026-03-01T10:00:04.900000Z")


def test_an_older_copy_is_rejected_by_the_next_epoch_if_the_offsets_epoch_is_pruned(copies: Copies) -> None:
    _, offset = Reading(str(copies.path)).run()
    copies.put_back()
    copies.seal(8, rows=7)
    consumers.record(copies.maker.spool, "default", 8, now=0)
    copies.maker.writer.retention.prune(now=copies.maker.watermark + 9 * MINUTE)
    assert copies.maker.spool.floor() == 9
    line = error_line(lambda: Reading(str(copies.path)).run(offset))
    assert "its epoch 9 begins after 2026-03-01T10:00:04.700000Z" in line
    assert (
        "what was committed after 2026-03-01T10:00:03.900000Z up to 2026-03-01T10:00:04.700000Z will be missing."
        in line
    )


def test_a_paused_query_rejects_an_older_copy_that_was_restored_meanwhile(copies: Copies) -> None:
    reading = Reading(str(copies.path))
    offset = reading.reader.latestOffset(reading.reader.initialOffset(), ALL)
    copies.put_back()
    copies.seal(8, rows=7)
    end = reading.reader.latestOffset(offset, ALL)
    assert "its epoch 9 begins after" in error_line(lambda: reading.batch(offset, end))


def test_an_offset_of_the_previous_version_is_accepted(copies: Copies) -> None:
    offset: Offset = {"version": 1, "epoch": 4, "spool": copies.maker.spool_id}
    ids, end = Reading(str(copies.path)).run(offset)
    assert ids == list(range(20, 40))
    assert "at" in end


def test_an_error_about_a_damaged_offset_is_one_line(copies: Copies) -> None:
    offset: Offset = {"version": 1, "epoch": 4, "spool": copies.maker.spool_id, "at": "x"}
    assert "a damaged offset: 'x' does not identify an epoch" in error_line(
        lambda: Reading(str(copies.path)).run(offset)
    )


def test_an_older_copy_of_the_checkpoint_reads_the_same_epochs_again(copies: Copies) -> None:
    start = Reading(str(copies.path)).reader.initialOffset()
    reading = Reading(str(copies.path))
    older = reading.reader.latestOffset(start, ALL)
    first = reading.batch(start, older)
    copies.seal(2)
    more = reading.batch(older, reading.reader.latestOffset(older, ALL))
    again = Reading(str(copies.path))
    assert again.batch(start, again.reader.latestOffset(start, ALL)) == first + more
    assert consumers.find(copies.maker.spool, "default").epoch == 0  # type: ignore[union-attr]


def test_an_older_checkpoint_whose_next_epoch_is_pruned_is_rejected_and_keeps_no_other_consumers_epochs(
    spool: SpoolMaker,
) -> None:
    spool.fill(2)
    _, old = Reading(spool.path).run()
    spool.fill(3)
    _, newest = Reading(spool.path).run(old)
    assert newest["epoch"] == 5
    consumers.record(spool.spool, "other", 5, now=0)
    spool.writer.retention.prune(now=spool.watermark + MINUTE * 9)
    oldest = spool.spool.floor()
    assert oldest > 3
    line = error_line(lambda: Reading(spool.path).run(old))
    assert line.startswith("epoch 3 is not in the spool at")
    assert "Restore the newest checkpoint, and nothing is lost; or start the query with a new checkpoint" in line
    assert "what was committed after" in line
    assert error_line(lambda: Reading(spool.path).batch(old, newest)) == line, "a micro-batch that Spark repeats"
    known = consumers.find(spool.spool, "default")
    assert known is not None
    assert known.epoch == 5, "nothing would be pruned past what it records"


def test_a_new_checkpoint_of_a_consumer_whose_next_epoch_is_pruned_starts_with_the_oldest_epoch_and_says_so(
    spool: SpoolMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    written = spool.fill(5)
    consumers.record(spool.spool, "default", 5, now=0)
    spool.writer.retention.prune(now=spool.watermark + MINUTE * 9)
    oldest = spool.spool.floor()
    consumers.record(spool.spool, "default", 1, now=0)  # as by an older program, whose checkpoint was put back
    ids, _ = Reading(spool.path).run()
    assert ids == written[-(6 - oldest) * (len(written) // 5) :]
    assert f"consumer default starts with epoch {oldest}, the oldest that the spool" in capsys.readouterr().err


def test_a_daemon_keeps_the_epochs_that_a_consumer_of_another_copy_has_not_read(copies: Copies) -> None:
    _, offset = Reading(str(copies.path)).run()
    Reading(str(copies.path)).run(offset)
    record_of_newer = (copies.path / "consumers/default.json").read_bytes()
    copies.put_back()
    (copies.path / "consumers").mkdir(exist_ok=True)
    (copies.path / "consumers/default.json").write_bytes(record_of_newer)
    for epochs in (1, 8):
        copies.seal(epochs, rows=7)
        assert copies.maker.writer.retention.prune(now=copies.maker.watermark + 9 * MINUTE) == 0
        assert copies.maker.writer.retention.strays == ("default",)
    consumers.record(copies.maker.spool, "default", 8, now=0, at=copies.maker.spool.manifest(8).identity)
    assert copies.maker.writer.retention.prune(now=copies.maker.watermark + 9 * MINUTE) == 8
    assert copies.maker.writer.retention.strays == ()


# The sinks.


def test_the_file_sink_rejects_an_older_copy_and_starts_over_without_its_checkpoint(tmp_path: Path) -> None:
    copies = Copies(tmp_path)
    checkpoint = Checkpoint()
    life = Life(copies.maker, checkpoint, FULL)
    copies.seal(4)
    life.run()
    copies.copy()
    copies.seal(4)
    life.run()
    life.run()
    life.kill()
    copies.put_back()
    copies.seal(8, rows=7)
    again = Life(copies.maker, checkpoint, FULL)
    line = error_line(again.run)
    again.kill()
    assert line.startswith("Spark's checkpoint ends with epoch 8, up to 2026-03-01T10:00:03.900000Z")
    at = re.search(
        r"or remove its checkpoint, and this sink continues after epoch (\d): what was committed after (\S+)", line
    )
    assert at is not None
    assert at.groups() == ("4", "2026-03-01T10:00:01.900000Z")
    before = life.root.rename(tmp_path / "before")
    restarted = Life(copies.maker, Checkpoint(), FULL)
    restarted.run()
    restarted.kill()
    assert (ids_of(before), ids_of(restarted.root)) == (list(range(40)), list(range(20, 76)))


def test_a_sink_with_a_record_of_another_copy_is_rejected_even_without_a_checkpoint(tmp_path: Path) -> None:
    copies = Copies(tmp_path)
    copies.seal(4)
    copies.copy()
    copies.seal(4)
    life = Life(copies.maker, Checkpoint(), FULL)
    life.run()
    life.run()
    life.kill()
    record_of_newer = {path.name: path.read_bytes() for path in (copies.path / "consumers").iterdir()}
    copies.put_back()
    (copies.path / "consumers").mkdir(exist_ok=True)
    for name, data in record_of_newer.items():
        (copies.path / "consumers" / name).write_bytes(data)
    for epochs in (1, 7):
        copies.seal(epochs, rows=7)
        again = Life(copies.maker, Checkpoint(), FULL)
        line = error_line(again.run)
        again.kill()
        assert line.startswith(
            "the record of what this sink has delivered ends with epoch 8, up to 2026-03-01T10:00:03.900000Z"
        )
        assert f"`spanner-cdc spool {copies.path} --forget files` and remove its checkpoint: " in line


def test_a_micro_batch_that_was_started_with_another_copy_is_rejected(tmp_path: Path) -> None:
    copies = Copies(tmp_path)
    copies.seal(2)
    copies.copy()
    copies.seal(2)
    life = Life(copies.maker, Checkpoint(), FULL)
    assert life.plan()
    life.kill()
    started = (copies.path / "consumers/files.begun").read_bytes()
    copies.put_back()
    (copies.path / "consumers").mkdir(exist_ok=True)
    (copies.path / "consumers/files.begun").write_bytes(started)
    for epochs in (1, 7):
        copies.seal(epochs, rows=7)
        again = Life(copies.maker, Checkpoint(), FULL)
        line = error_line(again.run)
        again.kill()
        assert line.startswith(
            "a micro-batch that this sink has started ends with epoch 4, up to 2026-03-01T10:00:01.900000Z"
        )
        assert f"or remove {copies.path / 'consumers/files.begun'}" in line


def test_committed_streams_of_another_copy_are_rejected(copies: Copies) -> None:
    commit_log = CommitLog(copies.maker.spool)
    commit_log.enter(7, "Singers", ("stream",), copies.maker.spool.manifest(7).identity)
    assert commit_log.find(7, "Singers", copies.maker.spool.manifest(7).identity) is not None
    copies.seal(1)
    assert "is of another epoch 7 than the one in this spool" in error_line(
        lambda: commit_log.find(7, "Singers", copies.maker.spool.manifest(8).identity)
    )
