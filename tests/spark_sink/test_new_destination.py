"""A destination of a third party: a folder of its own and an entry point, and nothing else."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from connector.core.timestamps import SECOND
from spark_sink.errors import SinkError
from tests.spark_sink.processes import eventually, program
from tests.spark_sink.spools import SpoolMaker
from tests.spark_sink.sqlite_sink.table import events, write_epoch

SOURCE = "source: {project: project, instance: instance, database: d, change_stream: Everything}"


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Registers the entry point `sqlite`, as an installed distribution does, for processes that are started later."""

    def register(value: str) -> None:
        folder = tmp_path / "site" / "sqlite_sink-1.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: sqlite-sink\nVersion: 1\n")
        (folder / "entry_points.txt").write_text(f"[spanner_cdc.sinks]\nsqlite = {value}\n")
        paths = [str(folder.parent), str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    return register


def configured(folder: Path, sink: str) -> str:
    path = folder / "config.yaml"
    path.write_text(
        f"{SOURCE}\nspool: {{path: {folder / 'spool'}}}\nsink: {sink}\n"
        f"spark: {{master: 'local[2]', checkpoint: {folder / 'checkpoint'}, trigger: 100ms,"
        f" config: {{spark.driver.memory: 768m}}}}\n"
    )
    return str(path)


def errors_of(configuration: str) -> str:
    code = "import sys\nfrom connector.config.loading import load\nload(sys.argv[1])"
    command = [sys.executable, "-c", code, configuration]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()


def last_epoch(database: Path) -> int:
    return events(str(database))[-1][0]


@pytest.mark.long
@pytest.mark.spark
def test_epochs_are_written_once_each_though_the_sink_is_killed(
    spool: SpoolMaker, tmp_path: Path, register: Callable[[str], None]
) -> None:
    register("tests.spark_sink.sqlite_sink.sink:SINK")
    database = tmp_path / "events.sqlite"
    configuration = configured(tmp_path, f"{{type: sqlite, path: {database}}}")
    ids = spool.fill(4)
    with program(tmp_path / "log0", "-m", "spark_sink", configuration) as sink:
        eventually(lambda: "batch 0:" in sink.said() or sink.has_ended(), "an epoch is written", starts=2)
        assert not sink.has_ended(), sink.said()
        sink.kill()
    ids += spool.fill(2, step=SECOND)
    with program(tmp_path / "log1", "-m", "spark_sink", configuration) as sink:
        everything = 6
        eventually(lambda: last_epoch(database) == everything or sink.has_ended(), "all is written", starts=3)
        sink.end_input()
        assert sink.code() == 0, sink.said()
    written = events(str(database))
    assert [int(json.loads(payload)["Id"]) for _, payload in written] == ids
    assert sorted({epoch for epoch, _ in written}) == list(range(1, everything + 1))
    assert f"ready: the spool at {spool.path} goes to SQLite, {database}" in sink.said()


def test_an_epoch_that_is_delivered_again_is_not_written_again(tmp_path: Path) -> None:
    path = str(tmp_path / "events.sqlite")
    assert write_epoch(path, "stream", 1, "a", [("u", "Singers", "{}")])
    assert not write_epoch(path, "stream", 1, "a", [("u", "Singers", "{}")])
    with pytest.raises(SinkError, match="another epoch 1"):
        write_epoch(path, "stream", 1, "b", [("u", "Singers", "{}")])
    assert events(path) == [(1, "{}")]


def test_the_first_epoch_of_a_backfill_is_written_beside_that_of_the_stream(tmp_path: Path) -> None:
    path = str(tmp_path / "events.sqlite")
    assert write_epoch(path, "stream", 1, "a", [("u", "Singers", "{}")])
    assert write_epoch(path, "backfill", 1, "b", [("v", "Singers", "[]")])
    assert [payload for _, payload in events(path)] == ["{}", "[]"]


@pytest.mark.long
def test_options_of_a_registered_sink_are_checked_with_all_others(
    tmp_path: Path, register: Callable[[str], None]
) -> None:
    register("tests.spark_sink.sqlite_sink.sink:SINK")
    error = errors_of(configured(tmp_path, "{type: sqlite, file: x}\nenvelope: {format: xml}"))
    for part in ("envelope.format: ", "sink.path: is needed", "sink.file: there is no such option"):
        assert part in error
    assert "sink.type: 'oracle' is none of files, bigquery, spanner, sqlite, tables" in errors_of(
        configured(tmp_path, "{type: oracle}")
    )


def test_a_sink_whose_package_is_broken_is_refused_and_does_not_disturb_others(
    tmp_path: Path, register: Callable[[str], None]
) -> None:
    register("no_such_package:SINK")
    error = errors_of(configured(tmp_path, "{type: sqlite, path: x}"))
    assert "sink.type: sink 'sqlite' cannot be imported from no_such_package:SINK: No module named" in error
    assert errors_of(configured(tmp_path, "{type: files}")) == ""
