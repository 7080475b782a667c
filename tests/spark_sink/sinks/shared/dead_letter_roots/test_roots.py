"""The root of a dead-letter store: a sink records it, and whoever names another one meets a line."""

import shutil
from pathlib import Path

import orjson
import pytest
import yaml

from connector.config.loading import Config, load
from connector.errors import ConfigurationError
from connector.spool import consumers
from connector.spool.sink_report import NOTHING, report_of, write_report
from spark_sink.dead_letters_command import main
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.beginning import begin, begin_backfill
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.replayed_spools import open_dead_letters
from tests.spark_sink.spools import START, SpoolMaker, record

SOURCE = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}


class Deployment:
    """A sink whose `sink.dead_letters` is the default, which is relative, and two folders to begin it in."""

    def __init__(self, maker: SpoolMaker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.maker, self.folder, self._patch = maker, folder, monkeypatch
        self.path = folder / "config.yaml"
        self.configure()
        maker.seal(record(START + 1, [1, 2, 3]))

    def configure(self, **sink: object) -> None:
        section = {"type": "files", "path": str(self.folder / "out"), "format": "jsonl", **sink}
        self.path.write_text(yaml.safe_dump({"source": SOURCE, "spool": {"path": self.maker.path}, "sink": section}))

    @property
    def config(self) -> Config:
        return load(self.path)

    def begin_in(self, name: str) -> None:
        self.go_to(name)
        begin(self.config)

    def go_to(self, name: str) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        self._patch.chdir(self.folder / name)

    def root_in(self, name: str) -> str:
        return str(self.folder / name / "dead-letters/files")

    def reject(self, root: str, epoch: int = 1) -> None:
        """Rejects three rows of an epoch, and counts them."""
        (file,) = self.maker.spool.manifest(1).files
        (rows,) = self.maker.spool.batches(file)
        DeadLetters(root).put("Singers", f"{self.maker.spool_id}_files_{epoch}_0", rows, ["why"] * rows.num_rows)
        write_report(self.maker.spool, "files", report_of(self.maker.spool, "files").after(epoch, 3, {}))
        consumers.record(self.maker.spool, "files", 1, now=START, at=self.maker.spool.manifest(1).identity)

    @property
    def recorded(self) -> str:
        return report_of(self.maker.spool, "files").dead_letters

    @property
    def left(self) -> int:
        return open_dead_letters(self.maker.spool, "files")


@pytest.fixture
def sink(spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    return Deployment(spool, tmp_path, monkeypatch)


def test_a_replay_in_another_folder_ends_no_alarm(sink: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    sink.begin_in("service")
    sink.reject(sink.root_in("service"))
    sink.go_to("shell")
    assert main(["list", str(sink.path)]) == 2
    out, err = capsys.readouterr()
    assert out == f"{sink.root_in('shell')}: no dead letters\n"
    assert f"sink files has dead letters at {sink.root_in('service')}" in err
    assert "--moved" in err
    for arguments in ([], ["--table", "Singers"]):
        assert main(["replay", str(sink.path), *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert f"sink files has dead letters at {sink.root_in('service')}" in err
    assert sink.left == 3
    sink.go_to("service")
    assert main(["list", str(sink.path)]) == 0
    assert main(["replay", str(sink.path)]) == 0
    assert sink.left == 0


def test_a_list_as_json_in_another_folder_has_an_exit_code(
    sink: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    sink.begin_in("service")
    sink.reject(sink.root_in("service"))
    sink.go_to("shell")
    assert main(["list", str(sink.path), "--json"]) == 2
    assert orjson.loads(capsys.readouterr().out) == []


def test_some_dead_letters_at_another_root_are_not_all(sink: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    sink.begin_in("service")
    sink.reject(sink.root_in("service"))
    sink.reject(sink.root_in("service"), epoch=2)
    shutil.copytree(sink.root_in("service"), sink.root_in("shell"))
    next(Path(sink.root_in("shell")).rglob("*.jsonl")).unlink()
    sink.go_to("shell")
    assert main(["replay", str(sink.path)]) == 2
    assert len(DeadLetters(sink.root_in("shell")).files()) == 1
    assert sink.left == 6


def test_a_sink_does_not_start_with_another_root_while_it_has_dead_letters(sink: Deployment) -> None:
    sink.begin_in("service")
    sink.reject(sink.root_in("service"))
    with pytest.raises(ConfigurationError, match=r"sink files has dead letters at .*/service/.*--moved"):
        sink.begin_in("shell")
    assert sink.recorded == sink.root_in("service")
    sink.begin_in("service")


def test_a_sink_without_dead_letters_takes_any_root(sink: Deployment) -> None:
    for name in ("service", "shell"):
        sink.begin_in(name)
        assert sink.recorded == sink.root_in(name)


def test_dead_letters_that_were_moved_are_found_at_the_new_root(sink: Deployment) -> None:
    sink.begin_in("service")
    sink.reject(sink.root_in("service"))
    shutil.move(sink.root_in("service"), sink.root_in("new"))
    sink.begin_in("new")
    assert sink.recorded == sink.root_in("new")
    with pytest.raises(ConfigurationError):
        sink.begin_in("service")


def test_dead_letters_that_were_moved_can_be_replayed_before_a_start(sink: Deployment) -> None:
    sink.begin_in("service")
    sink.reject(sink.root_in("service"))
    shutil.move(sink.root_in("service"), sink.root_in("new"))
    sink.go_to("new")
    assert main(["list", str(sink.path)]) == 0
    assert main(["replay", str(sink.path)]) == 0
    assert sink.left == 0
    sink.begin_in("new")
    assert sink.recorded == sink.root_in("new")


def test_another_streams_dead_letters_at_the_new_root_do_not_count(sink: Deployment) -> None:
    sink.begin_in("service")
    sink.reject(sink.root_in("service"))
    shutil.move(sink.root_in("service"), sink.root_in("new"))
    (file,) = Path(sink.root_in("new")).rglob("*.jsonl")
    file.rename(file.with_name(f"{'0' * 16}_files_1_0.jsonl"))
    with pytest.raises(ConfigurationError):
        sink.begin_in("new")


@pytest.mark.parametrize("is_left", [True, False])
def test_an_option_says_that_what_is_at_the_new_root_is_all(
    sink: Deployment, capsys: pytest.CaptureFixture[str], *, is_left: bool
) -> None:
    sink.begin_in("service")
    sink.reject(sink.root_in("service"))
    sink.reject(sink.root_in("service"), epoch=2)
    shutil.move(sink.root_in("service"), sink.root_in("new"))
    first, second = sorted(Path(sink.root_in("new")).rglob("*.jsonl"))
    first.unlink()
    if not is_left:
        second.unlink()
    sink.go_to("new")
    assert main(["list", str(sink.path)]) == 2
    consumers.record(sink.maker.spool, "files", 0, now=START)
    assert main(["replay", str(sink.path), "--moved"]) == is_left, capsys.readouterr().err
    assert sink.recorded == sink.root_in("new")
    assert sink.left == (3 if is_left else 0)
    sink.begin_in("new")


def test_a_sink_that_runs_keeps_its_root_though_an_option_names_another(
    sink: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    sink.begin_in("service")
    sink.reject(sink.root_in("service"))
    sink.go_to("shell")
    with sink.maker.spool.storage.locked(consumers.sink_lock("files"), "the sink runs"):
        assert main(["replay", str(sink.path), "--moved"]) == 1
    assert "stop it, and replay again" in capsys.readouterr().err
    assert (sink.recorded, sink.left) == (sink.root_in("service"), 3)


def test_a_report_of_an_older_program_names_no_root_and_nothing_changes(
    sink: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    sink.go_to("service")
    sink.reject(sink.root_in("service"))
    sink.begin_in("shell")
    assert sink.recorded == "", "there are no dead letters of this sink: it may be the wrong folder"
    assert main(["list", str(sink.path)]) == 0
    sink.begin_in("service")
    assert sink.recorded == sink.root_in("service")
    sink.go_to("shell")
    assert main(["list", str(sink.path)]) == 2


def test_an_older_programs_alarm_ends_where_its_store_is_empty(sink: Deployment) -> None:
    write_report(sink.maker.spool, "files", NOTHING.after(1, 3, {}))
    sink.go_to("service")
    assert main(["replay", str(sink.path)]) == 0
    assert sink.left == 0


def test_a_bucket_is_a_root_whoever_is_billed(sink: Deployment, bucket: str) -> None:
    sink.configure(dead_letters=f"{bucket}/one")
    sink.begin_in("service")
    assert sink.recorded == f"{bucket}/one/files"
    sink.reject(sink.recorded)
    sink.configure(dead_letters=f"{bucket}/one", user_project="billed-project")
    sink.begin_in("shell")
    for other in (f"{bucket}/two", "./dead-letters"):
        sink.configure(dead_letters=other)
        with pytest.raises(ConfigurationError, match=r"sink files has dead letters at gs://"):
            sink.begin_in("shell")
        assert main(["replay", str(sink.path)]) == 2


def test_a_list_needs_no_spool(sink: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    sink.begin_in("service")
    shutil.rmtree(sink.maker.path)
    sink.go_to("shell")
    assert main(["list", str(sink.path)]) == 0


# Backfills.


def test_a_backfill_that_is_started_in_another_folder_than_its_sink_is_refused(sink: Deployment) -> None:
    sink.begin_in("service")
    sink.go_to("shell")
    with sink.maker.spool.storage.locked(consumers.sink_lock("files"), "the sink runs"):
        with pytest.raises(SinkError, match=r"sink files runs with its dead letters at .*/service/"):
            begin_backfill(sink.config, sink.maker.spool)
        sink.go_to("service")
        begin_backfill(sink.config, sink.maker.spool)


def test_a_backfill_records_the_root_where_the_sink_does_not_run(sink: Deployment) -> None:
    sink.go_to("service")
    begin_backfill(sink.config, sink.maker.spool)
    assert sink.recorded == sink.root_in("service")
    sink.reject(sink.recorded)
    sink.go_to("shell")
    with pytest.raises(ConfigurationError, match=r"sink files has dead letters at .*/service/"):
        begin_backfill(sink.config, sink.maker.spool)
