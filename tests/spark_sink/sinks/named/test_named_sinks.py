"""Several sinks of one spool, by name; each with a destination that is kept."""

from pathlib import Path
from signal import SIGTERM

import orjson
import pytest

from connector.config.loading import load
from connector.errors import ConfigurationError, SpoolError
from connector.spool import consumers
from spark_sink.sinks.files.delivery import FileDelivery
from spark_sink.sinks.shared.beginning import begin
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sources.changes import epoch_stream
from tests.integration.commands import Background
from tests.spark_sink.processes import program
from tests.spark_sink.sinks.named.named_sinks import LIMIT, delivered, ids, reader_of, written
from tests.spark_sink.spools import START, SpoolMaker, record


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_stream, "NEWS_WAIT", 0.0)


def test_each_of_two_file_sinks_of_a_spool_delivers_everything(spool: SpoolMaker, tmp_path: Path) -> None:
    first, second = (load(written(tmp_path, spool, name)) for name in ("files", "archive"))
    spool.fill(3)
    at = delivered(reader_of(first))
    other = reader_of(second)
    spool.fill(2)
    delivered(other)
    delivered(reader_of(first), at)
    assert ids(tmp_path / "files") == ids(tmp_path / "archive") == list(range(25))
    assert [one.consumer for one in consumers.consumers(spool.spool)] == ["archive", "files"]
    checkpoints = {FileDelivery(each, each.sink, Feed.of(each)).checkpoint for each in (first, second)}  # type: ignore[arg-type]
    assert checkpoints == {str(tmp_path / "checkpoint"), str(tmp_path / "checkpoint" / "sinks" / "archive")}


def test_a_sink_that_is_new_over_a_pruned_spool_says_what_it_cannot_deliver(
    spool: SpoolMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool.fill(4)
    consumers.record(spool.spool, "files", 3, now=START)
    spool.writer.retention.prune(now=START + 10**13, grace=0)
    assert spool.spool.floor() == 4
    config = load(written(tmp_path, spool, "archive"))
    reader = reader_of(config)
    line = capsys.readouterr().err
    assert "sink archive is new, and starts after epoch 3 of the spool" in line
    assert "`spanner-cdc backfill CONFIG`" in line
    delivered(reader)
    assert ids(tmp_path / "archive") == list(range(15, 20))
    begin(config)
    assert not capsys.readouterr().err


def test_a_forgotten_sink_does_not_continue_from_its_old_checkpoint_in_silence(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    config = load(written(tmp_path, spool, "files"))
    spool.fill(2)
    at = delivered(reader_of(config))
    consumers.forget(spool.spool, "files")
    with pytest.raises(SpoolError, match=r"no record of sink files: it was forgotten, or .*copy\. Remove"):
        reader_of(config).latestOffset(at, LIMIT)
    elsewhere = load(written(tmp_path, spool, "files", path=str(tmp_path / "elsewhere")))
    delivered(reader_of(elsewhere))
    assert ids(tmp_path / "elsewhere") == list(range(10))


def test_a_sink_does_not_begin_with_another_destination(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(1)
    delivered(reader_of(load(written(tmp_path, spool, "files"))))
    with pytest.raises(ConfigurationError, match=r"sink.path: sink files has delivered"):
        begin(load(written(tmp_path, spool, "files", path=str(tmp_path / "elsewhere"))))


@pytest.mark.spark
def test_the_sinks_process_refuses_another_destination_before_it_starts_spark(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    spool.seal(record(START + 1, range(3)))
    delivered(reader_of(load(written(tmp_path, spool, "files"))))
    other = str(written(tmp_path, spool, "files", format="avro"))
    with program(tmp_path / "log", "-m", "spark_sink", other) as sink:
        assert sink.code() == 2
        assert "sink.format: sink files has delivered" in sink.said()
        assert len(sink.said().splitlines()) == 1


@pytest.mark.long
def test_a_second_sink_is_a_service_of_its_own_beside_the_daemon(tmp_path: Path) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    ids = spool.fill(epochs=2)
    path = written(tmp_path, spool, "second")
    with Background("run", path, "--sink-only", log=tmp_path / "log") as second:
        second.until(lambda: consumers.consumers(spool.spool) != [], "the sink")
        ids += spool.fill(epochs=2)  # the daemon continues meanwhile
        second.until(lambda: len(ids_below(tmp_path / "second")) == len(ids), "all events")
        done = second.stop(SIGTERM)
    assert done.code == 0, done.err
    assert sorted(ids_below(tmp_path / "second")) == ids


def ids_below(folder: Path) -> list[int]:
    lines = [line for file in folder.rglob("*.jsonl") for line in file.read_bytes().splitlines()]
    return [orjson.loads(line)["payload"]["Id"] for line in lines]
