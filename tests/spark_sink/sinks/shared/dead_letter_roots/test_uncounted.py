"""Dead letters that no report has: a start of the sink, or a replay, counts those that its store has."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from connector.config.loading import load
from connector.spool import consumers
from connector.spool.sink_report import NOTHING, report_of, write_report
from spark_sink.dead_letters_command import main
from spark_sink.sinks.files.replay import _FileReplay
from spark_sink.sinks.shared.beginning import begin
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.replayed_spools import open_dead_letters
from tests.spark_sink.spools import START, SpoolMaker, record

Put = Callable[..., None]


@pytest.fixture
def config(spool: SpoolMaker, tmp_path: Path) -> Path:
    """Of a sink that has done the first of two epochs."""
    for epoch in (1, 2):
        spool.seal(record(START + epoch, [epoch]))
    consumers.record(spool.spool, "files", 1, now=START, at=spool.spool.manifest(1).identity)
    path = tmp_path / "config.yaml"
    source = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
    sink = {"type": "files", "path": str(tmp_path / "out"), "dead_letters": str(tmp_path / "letters")}
    path.write_text(yaml.safe_dump({"source": source, "spool": {"path": spool.path}, "sink": sink}))
    return path


@pytest.fixture
def put(spool: SpoolMaker, tmp_path: Path, config: Path) -> Put:
    """Stores a dead letter of an epoch, and reports nothing."""

    def stored(epoch: int, prefix: str = "") -> None:
        (file,) = spool.spool.manifest(epoch).files
        (rows,) = spool.spool.batches(file)
        name = f"{prefix or spool.spool_id}_files_{epoch}_0"
        DeadLetters(str(tmp_path / "letters/files")).put("Singers", name, rows, ["why"])

    return stored


def test_a_start_counts_what_was_never_reported(spool: SpoolMaker, config: Path, put: Put) -> None:
    put(1)
    begin(load(config))
    assert open_dead_letters(spool.spool, "files") == 1
    begin(load(config))
    assert open_dead_letters(spool.spool, "files") == 1


def test_a_start_leaves_what_its_first_micro_batch_reports(spool: SpoolMaker, config: Path, put: Put) -> None:
    put(2)
    begin(load(config))
    assert open_dead_letters(spool.spool, "files") == 0


def test_a_start_counts_no_dead_letters_of_another_spool(spool: SpoolMaker, config: Path, put: Put) -> None:
    put(1, prefix="0" * 16)
    begin(load(config))
    assert open_dead_letters(spool.spool, "files") == 0


def test_a_start_after_a_replay_counts_what_was_stored_since(spool: SpoolMaker, config: Path, put: Put) -> None:
    write_report(spool.spool, "files", NOTHING.after(1, 3, {}).model_copy(update={"replayed": 3}))
    put(1)
    begin(load(config))
    assert open_dead_letters(spool.spool, "files") == 1
    assert report_of(spool.spool, "files").refused == 4


def test_a_file_that_cannot_be_read_ends_no_start(spool: SpoolMaker, config: Path, put: Put, tmp_path: Path) -> None:
    put(1)
    (path,) = (tmp_path / "letters").rglob("*.jsonl")
    path.write_text("{\n")
    begin(load(config))
    assert open_dead_letters(spool.spool, "files") == 0


@pytest.fixture
def rejecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects every row that a replay sends."""

    def rejected(_: object, __: str, rows: pa.RecordBatch) -> list[tuple[int, str]]:
        return [(index, "again") for index in range(rows.num_rows)]

    monkeypatch.setattr(_FileReplay, "_write", rejected)


@pytest.mark.usefixtures("rejecting")
def test_a_replay_counts_what_it_leaves_but_not_what_the_sink_will_report(
    spool: SpoolMaker, config: Path, put: Put
) -> None:
    put(1)
    put(2)
    assert main(["replay", str(config)]) == 1
    assert len(DeadLetters(str(config.parent / "letters/files")).files()) == 2
    assert report_of(spool.spool, "files").refused == 1


@pytest.mark.usefixtures("rejecting")
def test_a_replay_counts_nothing_of_another_spool(spool: SpoolMaker, config: Path, put: Put) -> None:
    put(1)
    put(1, prefix="0" * 16)
    main(["replay", str(config)])
    assert report_of(spool.spool, "files").refused == 1
