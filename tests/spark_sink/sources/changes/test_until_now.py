"""The reader inside a job, in a run that takes what there is until now: all of it, and an error is never an end."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from connector.core.health.retries import SPANNER, Cause, Retry
from connector.core.health.states import NEVER, StreamState
from connector.core.timestamps import SECOND
from connector.errors import SpoolError, StreamError
from connector.spool import cuts
from connector.spool.lifecycle import request_pause, write_state
from connector.spool.reading import Spool
from spark_sink.sources.changes import epoch_stream, in_job
from spark_sink.sources.changes.data_source import EventsStreamReader
from spark_sink.sources.changes.in_job import InJobReader
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.options import InJobOptions, SourceOptions
from spark_sink.sources.changes.read_limits import ReadAllAvailable
from tests.spark_sink.processes import eventually
from tests.spark_sink.spools import SpoolMaker

Json = dict[str, object]


class Sealing(InJobReader):
    """A reader that does one thing each time it is looked after: seals, fails or ends.

    Args:
        spool: the spool's path.
        steps: epochs of changes to seal; 0 for an epoch without changes, negative for none; or the error that ends it.
    """

    def __init__(self, spool: str, steps: Sequence[int | StreamError]) -> None:
        super().__init__(InJobOptions("p", "i", "db", "S"), spool)
        self._maker = SpoolMaker(spool, reopen=True)
        self._steps = list(steps)

    def ensure(self) -> None:
        if not self._steps:
            self.finished = self.ends_now
            return
        step = self._steps.pop(0)
        if isinstance(step, StreamError):
            raise step
        if step == 0:
            self._maker.seal(high=self._maker.watermark + SECOND)
        self._maker.fill(max(step, 0))


class Runs:
    """Runs of a query with the calls that Spark makes; a run is a process, so each has a reader of its own."""

    def __init__(self, spool: Path) -> None:
        self.spool = str(spool)
        self.checkpoint: list[Json] = []

    def reader(self, *steps: int | StreamError, **options: str) -> EventsStreamReader:
        given = dict.fromkeys(("projectId", "instanceId", "databaseId", "changeStream"), "x")
        reader = EventsStreamReader(SourceOptions.parse({"spool": self.spool, **given, **options}), 1)
        reader._in_job = Sealing(self.spool, steps)
        reader._claim.hold = lambda: None  # type: ignore[method-assign]
        return reader

    def available_now(self, *steps: int | StreamError, **options: str) -> list[tuple[int, int]]:
        """The epochs of each micro-batch of a run with ``Trigger.AvailableNow``."""
        reader = self.reader(*steps, **options)
        reader.prepareForTriggerAvailableNow()
        limit = reader.getDefaultReadLimit()
        return list(iter(lambda: self._batch(reader, lambda start: reader.latestOffset(start, limit)), None))

    def once(self, *steps: int | StreamError, **options: str) -> tuple[int, int] | None:
        """The epochs of the micro-batch of a run with ``Trigger.Once``."""
        reader = self.reader(*steps, **options)
        assert reader.getDefaultReadLimit() != ReadAllAvailable(), "else Spark passes the same with any trigger"
        return self._batch(reader, lambda start: reader.latestOffset(start, ReadAllAvailable()))

    def of_old_spark(self, *steps: int | StreamError) -> tuple[int, int] | None:
        """The epochs of the first micro-batch before PySpark 4.2, whatever the trigger."""
        return self.old_spark(*steps)[1]

    def old_spark(self, *steps: int | StreamError) -> tuple[EventsStreamReader, tuple[int, int] | None]:
        """The same with the reader."""
        reader = self.reader(*steps)
        if self.checkpoint:
            reader.partitions(self.checkpoint[-1], self.checkpoint[-1])
        end = reader.latestOffset()
        return reader, self._batch(reader, lambda _: end)

    def _batch(self, reader: EventsStreamReader, end_of: Callable[[Json], Json]) -> tuple[int, int] | None:
        start = self.checkpoint[-1] if self.checkpoint else reader.initialOffset()
        end = end_of(start)
        if end == start:
            return None
        reader.partitions(start, end)
        self.checkpoint.append(end)
        return Offset.from_json(start).epoch + 1, Offset.from_json(end).epoch


ANY = pytest.mark.parametrize("run", [Runs.available_now, Runs.once, Runs.of_old_spark])
"""Every way in which a run takes what there is until now."""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr(epoch_stream, "NEWS_WAIT", 0.0)
    return Runs(tmp_path / "spool")


def test_available_now_takes_what_the_reader_seals_from_the_first_run_on(runs: Runs) -> None:
    assert runs.available_now(-1, -1, 2, -1, 1) == [(1, 2), (3, 3)]
    assert runs.available_now(-1, 1) == [(4, 4)]


def test_available_now_keeps_the_limit_of_a_micro_batch(runs: Runs) -> None:
    assert runs.available_now(3, maxRowsPerTrigger="1") == [(1, 1), (2, 2), (3, 3)]


def test_available_now_makes_no_micro_batch_of_epochs_without_changes(runs: Runs) -> None:
    assert runs.available_now(1, -1, -1, 0) == [(1, 1)]
    assert runs.available_now(0, 0) == []
    assert runs.available_now() == []
    assert runs.available_now(0, 1) == [(2, 6)]


def test_a_gap_makes_a_micro_batch_because_it_is_warned_of(runs: Runs) -> None:
    runs.available_now(1)
    maker = SpoolMaker(runs.spool, reopen=True)
    maker.restart_at(maker.watermark + SECOND)
    assert runs.available_now() == [(2, 2)]


def test_trigger_once_takes_all_of_it_in_one_micro_batch(runs: Runs) -> None:
    assert runs.once(-1, 1, -1, 2, maxRowsPerTrigger="1") == (1, 3)
    assert runs.once(0, 1) == (4, 5)
    assert runs.once(0) is None


def test_before_pyspark_4_2_the_first_micro_batch_of_a_run_takes_all_of_it_and_the_reader_then_reads_on(
    runs: Runs,
) -> None:
    reader, first = runs.old_spark(-1, 1, -1, 2)
    assert first == (1, 3)
    assert reader.latestOffset() == runs.checkpoint[-1]
    SpoolMaker(runs.spool, reopen=True).fill(1)
    assert Offset.from_json(reader.latestOffset()).epoch == 4
    assert reader._in_job is not None
    assert not reader._in_job.finished
    assert runs.of_old_spark(-1, 0) == (4, 5)
    assert runs.of_old_spark(0) is None


@ANY
@pytest.mark.parametrize("steps", [(), (-1,), (2,)], ids=["at once", "later", "after it has sealed"])
def test_a_reader_that_fails_ends_the_run_with_its_line(
    runs: Runs, run: Callable[..., object], steps: tuple[int, ...]
) -> None:
    with pytest.raises(StreamError, match="no such stream"):
        run(runs, *steps, StreamError("no such stream"))


@ANY
def test_a_checkpoint_of_another_spool_is_an_error_before_the_reader_is_started(
    runs: Runs, run: Callable[..., object], tmp_path: Path
) -> None:
    run(runs, 2)
    gone, other = Runs(tmp_path / "gone"), Runs(tmp_path / "other")
    SpoolMaker(other.spool).fill(3)
    gone.checkpoint = other.checkpoint = runs.checkpoint
    with pytest.raises(SpoolError, match=r"there are no epochs at .*/gone any more"):
        run(gone, StreamError("the reader was started"))
    with pytest.raises(SpoolError, match=r"Spark's checkpoint belongs to spool .*, but at .*/other is"):
        run(other, StreamError("the reader was started"))


@ANY
def test_a_reader_that_seals_nothing_is_an_error_within_bounded_time(
    runs: Runs, run: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_job, "SILENCE", 0.1)
    with pytest.raises(StreamError, match=r"has sealed nothing for 0 seconds\. Its log is in"):
        run(runs, *[-1] * 1000)


def test_a_query_that_works_long_on_a_micro_batch_does_not_take_the_reader_for_silent(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = runs.reader(1, -1, 1)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    monkeypatch.setattr(in_job, "SILENCE", 0.0)  # it has been silent for so long
    monkeypatch.setattr(reader._spool.storage, "poll_interval", 0.0)
    assert Offset.from_json(reader.latestOffset(end, reader.getDefaultReadLimit())).epoch == 2


@ANY
def test_an_error_of_the_spool_does_not_end_the_run_as_if_there_were_no_more(
    runs: Runs, run: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(runs, 1)
    latest, failures = Spool.latest, [BlockingIOError(11, "busy")] * 3

    def sometimes(spool: Spool) -> int:
        if failures:
            raise failures.pop()
        return latest(spool)

    monkeypatch.setattr(Sealing, "ensure", lambda reader: setattr(reader, "finished", True))
    maker = SpoolMaker(runs.spool, reopen=True)
    maker.fill(1)
    read = runs.reader()
    read.partitions(runs.checkpoint[-1], runs.checkpoint[-1])
    if run is Runs.available_now:
        read.prepareForTriggerAvailableNow()
    monkeypatch.setattr(Spool, "latest", sometimes)
    asked: dict[Callable[..., object], Callable[[], Json]] = {
        Runs.available_now: lambda: read.latestOffset(runs.checkpoint[-1], read.getDefaultReadLimit()),
        Runs.once: lambda: read.latestOffset(runs.checkpoint[-1], ReadAllAvailable()),
        Runs.of_old_spark: read.latestOffset,
    }
    end: Json = asked[run]()
    assert Offset.from_json(end).epoch == 2
    assert not failures


def test_available_now_without_a_reader_inside_does_not_end_with_an_error_of_the_spool(
    spool: SpoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.fill(1)
    reader = EventsStreamReader(SourceOptions.parse({"spool": spool.path}), 1)
    reader._claim.hold = lambda: None  # type: ignore[method-assign]
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    failures, real = [BlockingIOError(11, "busy")] * 3, reader._identity

    def identity(*given: int) -> str:
        if failures:
            raise failures.pop()
        return real(*given)

    monkeypatch.setattr(epoch_stream, "NEWS_WAIT", 0.0)
    monkeypatch.setattr(reader, "_identity", identity)
    assert Offset.from_json(reader.latestOffset(start, ReadAllAvailable())).epoch == 1


def test_the_error_about_a_silent_reader_says_what_keeps_it(tmp_path: Path) -> None:
    spool = SpoolMaker(tmp_path / "spool").spool
    reader = InJobReader(InJobOptions("p", "i", "db", "S"), spool.path)
    assert reader._why_silent() == ""
    request_pause(spool, now=1)
    write_state(spool, NEVER.to(StreamState.PAUSED, 1, reason="`spanner-cdc pause` was run"))
    assert reader._why_silent() == ": it is paused, because `spanner-cdc pause` was run"
    retry = Retry(SPANNER, Cause("Spanner does not answer", "UNAVAILABLE", "connection refused"), 1, 2)
    write_state(spool, NEVER.to(StreamState.RUNNING, 1).alive(2, [retry]))
    assert reader._why_silent() == ": Spanner does not answer (UNAVAILABLE: connection refused)"


def test_a_spool_that_is_nearly_full_is_delivered_because_the_reader_waits_for_that(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_job, "_NEARLY_FULL", 1)
    assert runs.once(2, *[-1] * 1000) == (1, 2)


def test_a_spool_is_nearly_full_with_the_files_of_cuts_as_the_daemon_counts_them(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuts, "INLINE", 0)
    alike = SpoolMaker(tmp_path / "alike")
    alike.fill(2)
    monkeypatch.setattr(in_job, "_NEARLY_FULL", alike.writer.retention.bytes - 40)
    assert runs.once(2, -1, StreamError("the daemon waits for room")) == (1, 2)


def test_a_spool_is_not_full_of_what_the_run_before_has_taken(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike = SpoolMaker(tmp_path / "alike")
    alike.fill(4)
    assert runs.once(4) == (1, 4)
    monkeypatch.setattr(in_job, "_NEARLY_FULL", alike.writer.retention.bytes)
    assert runs.once(1, -1, 1) == (5, 6)


def test_epochs_that_are_pruned_while_a_run_begins_do_not_end_it(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs.once(3) == (1, 3)
    reader = runs.reader(1)
    writer, floor_of, pruned = SpoolMaker(runs.spool, reopen=True).writer, Spool.floor, list[int]()

    def floor(spool: Spool) -> int:
        found = floor_of(spool)
        if spool is reader._spool and not any(pruned):  # by the daemon of the run before, once it knows what is done
            pruned.append(writer.retention.prune(now=time.time_ns(), grace=0))
        return found

    monkeypatch.setattr(Spool, "floor", floor)
    assert runs._batch(reader, lambda start: reader.latestOffset(start, ReadAllAvailable())) == (4, 4)
    assert pruned[-1] == 2


@pytest.mark.long
def test_the_daemon_reads_until_now_and_one_that_was_stopped_before_is_started_again(tmp_path: Path) -> None:
    stub = (sys.executable, "-m", "tests.spark_sink.sources.changes.programs.stub_daemon")
    reader = InJobReader(InJobOptions("p", "i", "stopped", "S"), str(tmp_path / "spool"), stub)
    reader.read_until_now()

    def finished() -> bool:
        reader.ensure()
        return reader.finished

    eventually(finished, "the daemon ends")
    assert Spool.at(tmp_path / "spool").latest() == 4
    assert len((tmp_path / "spool/writers.txt").read_text().splitlines()) == 2
