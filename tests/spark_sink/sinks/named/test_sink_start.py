"""Sinks that start in the middle of a kept spool, and sinks that are rebuilt from it."""

import shutil
from pathlib import Path

import orjson
import pytest

from connector.config.loading import load
from connector.config.sink_start import check_start
from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from connector.daemon.states.report import status_of, status_text
from connector.errors import ConfigurationError, SpoolError
from connector.spool import consumers
from connector.spool.backfill.completeness import incomplete_tables
from connector.spool.backfill.documents import BackfillProgress, TableProgress
from connector.spool.backfill.records import spool_of, write_progress
from connector.spool.sink_start import start_of_sink
from spark_sink.sinks.shared.beginning import begin
from spark_sink.sources.changes import epoch_stream
from tests.connector.spool.backfill.builders import recorded
from tests.integration.commands import run
from tests.spark_sink.sinks.named.named_sinks import LIMIT, delivered, ids, reader_of, written
from tests.spark_sink.sinks.shared.sink_runs import contents
from tests.spark_sink.spools import START, SpoolMaker, record


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_stream, "NEWS_WAIT", 0.0)


def minutes(spool: SpoolMaker, count: int) -> None:
    """Seals minutes of commit time, each of three epochs, as the reader cuts them: ids count the seconds."""
    first = spool.watermark + 1
    for minute in range(first, first + count * MINUTE, MINUTE):
        for second in (1, 30, 59):
            at = minute + second * SECOND
            high = minute + MINUTE - 1 if second == 59 else at
            spool.seal(record(at, [(at - START) // SECOND]), high=high)


def events(root: Path) -> dict[str, bytes]:
    """The files of events, without the empty markers of folders."""
    return {path: data for path, data in contents(root).items() if data}


def test_a_sink_that_starts_at_a_timestamp_writes_the_files_that_the_first_one_has_from_that_minute_on(
    spool: SpoolMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    minutes(spool, 4)
    delivered(reader_of(load(written(tmp_path, spool, "files", rotate_interval=60))))
    at = format_rfc3339(START + 2 * MINUTE + 45 * SECOND)
    second = load(written(tmp_path, spool, "second", rotate_interval=60, start=at))
    capsys.readouterr()
    delivered(reader_of(second))
    whole, later = events(tmp_path / "files"), events(tmp_path / "second")
    assert later == {path: data for path, data in whole.items() if path.split("/")[-2] in ("02", "03")}
    assert len(later) == 2
    start = START + 2 * MINUTE - 1
    line = capsys.readouterr().err
    assert "WARNING spark_sink: sink second is new, and starts after epoch 6 of the spool" in line
    assert f"committed after {format_rfc3339(start)}, and its tables are incomplete before that" in line


def test_what_a_sink_lacks_is_in_the_reports_of_its_spool(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(4)
    begin(load(written(tmp_path, spool, "second", start="now")))
    at = spool.watermark
    assert incomplete_tables(spool.spool, "second") == {"Singers": at}
    assert incomplete_tables(spool.spool, "of an older program") == {}
    said = f"; incomplete before {format_rfc3339(at)}: Singers"
    assert said in status_text(status_of(spool.spool, 0), with_errors=False)
    assert said in run("spool", spool.path).out.decode()
    report = orjson.loads(run("spool", spool.path, "--json").out)
    assert report["consumers"][0]["incomplete_before"] == format_rfc3339(at)


def test_a_sink_whose_backfill_was_delivered_to_another_one_only_says_what_it_lacks(
    spool: SpoolMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool.fill(1)
    begin(load(written(tmp_path, spool, "first", backfill=True)))
    document = recorded(spool.spool, spool.spool.header(), "Singers", at=START - 1)
    begin(load(written(tmp_path, spool, "beside", backfill=True)))
    assert not capsys.readouterr().err, "the backfill is not done"
    own = spool_of(spool.spool, document.number)
    write_progress(own, BackfillProgress(updated=START, tables=(TableProgress(table="Singers", state="done"),)))
    consumers.record(own, "filled", 1, now=START)
    begin(load(written(tmp_path, spool, "filled", backfill=True)))
    assert not capsys.readouterr().err
    begin(load(written(tmp_path, spool, "second", backfill=True)))
    line = capsys.readouterr().err
    assert "WARNING spark_sink: sink second is new: it delivers what was committed after" in line
    assert "its tables are incomplete before that; `spanner-cdc backfill CONFIG`" in line


def test_a_sink_that_starts_now_delivers_what_is_sealed_after_it_was_registered(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    spool.fill(2)
    reader = reader_of(load(written(tmp_path, spool, "second", start="now")))
    spool.fill(2)
    delivered(reader)
    assert ids(tmp_path / "second") == list(range(10, 20))


def test_a_sink_is_rebuilt_by_forgetting_it_and_a_start_at_a_timestamp(spool: SpoolMaker, tmp_path: Path) -> None:
    minutes(spool, 4)
    path = written(tmp_path, spool, "files", rotate_interval=60)
    old = delivered(reader_of(load(path)))
    right = events(tmp_path / "files")
    for file in (tmp_path / "files").rglob("*.jsonl"):
        file.write_bytes(b"wrong")
    assert run("spool", spool.path, "--forget", "files").code == 0
    shutil.rmtree(tmp_path / "files")
    start = format_rfc3339(START + MINUTE - 1)
    again = load(written(tmp_path, spool, "files", rotate_interval=60, start=start))
    reader = reader_of(again)
    with pytest.raises(SpoolError, match=r"no record of sink files: it was forgotten.*Remove the checkpoint"):
        reader.latestOffset(old, LIMIT)
    delivered(reader)
    assert events(tmp_path / "files") == {path: data for path, data in right.items() if path.split("/")[-2] != "00"}
    recorded = start_of_sink(spool.spool, "files")
    assert recorded is not None
    assert recorded.after == START + MINUTE - 1


def test_a_killed_sink_continues_after_its_first_micro_batch_before_the_spool_has_a_record_of_it(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    spool.fill(4)
    config = load(written(tmp_path, spool, "second", start="-2s"))
    reader = reader_of(config)
    start = reader.initialOffset()
    end = reader.latestOffset(start, LIMIT)
    for task in reader.partitions(start, end):
        list(reader.read(task))
    held = reader._claim._held
    assert held is not None
    held.close()
    spool.fill(1)
    delivered(reader_of(config), end)
    assert ids(tmp_path / "second") == list(range(10, 25))


def test_the_start_of_a_sink_that_has_delivered_is_of_no_account(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(2)
    at = delivered(reader_of(load(written(tmp_path, spool, "files"))))
    spool.fill(2)
    delivered(reader_of(load(written(tmp_path, spool, "files", start="now"))), at)
    assert ids(tmp_path / "files") == list(range(20))


def test_a_start_before_what_is_kept_is_refused_before_anything_is_registered(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    spool.fill(4)
    consumers.record(spool.spool, "files", 3, now=START)
    spool.writer.retention.prune(now=START + 10**13, grace=0)
    config = load(written(tmp_path, spool, "second", start="-1h"))
    for refused in (check_start, begin):
        with pytest.raises(ConfigurationError, match=r"sink.start: -1h asks for .* set sink.start: "):
            refused(config)
    assert consumers.find(spool.spool, "second") is None


def test_a_sink_that_starts_far_behind_weighs_some_of_the_epochs_at_a_time(
    spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_stream, "WEIGHED_EPOCHS", 3)
    spool.fill(8)
    reader = reader_of(load(written(tmp_path, spool, "second")))
    offset, ends = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, LIMIT)) != offset:
        for task in reader.partitions(offset, end):
            list(reader.read(task))
        offset = end
        ends.append(end["epoch"])
        assert len(reader._weights) <= 3
    assert ends == [3, 6, 8]
    assert ids(tmp_path / "second") == list(range(40))


@pytest.mark.parametrize("start", ["latest", "2026-13-01T00:00:00Z", "5m"])
def test_a_start_that_is_none_is_refused(spool: SpoolMaker, tmp_path: Path, start: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sink.start: '.*' is not a valid .*write"):
        load(written(tmp_path, spool, "second", start=start))
