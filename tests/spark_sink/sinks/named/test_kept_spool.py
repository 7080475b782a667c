"""A sink that is built from the kept spool alone, with Spanner shut down."""

import time
from pathlib import Path

import pytest
import yaml

from connector.config.loading import load
from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from connector.spool.reading import Spool
from emulator import Scenario, ScriptedServer
from spark_sink.sinks.files.complete_minutes import FOLDER
from tests.emulator.subjects import sample_of
from tests.integration.commands import configuration, manifests, run
from tests.spark_sink.sinks.named.named_sinks import delivered, reader_of


def files(root: Path) -> dict[str, bytes]:
    """The files of events; each sink has documents of complete minutes of its own."""
    found = (path for path in root.rglob("*") if FOLDER not in path.parts and path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def with_sink(config: Path, **sink: object) -> Path:
    """The configuration with another sink."""
    node = yaml.safe_load(config.read_text())
    path = config.parent / f"{sink['name']}.yaml"
    path.write_text(yaml.safe_dump({**node, "sink": {**node["sink"], **sink}}))
    return path


def deliver(config: Path) -> None:
    """Runs a sink as Spark would, until all minutes that are over are written."""
    delivered(reader_of(load(config)))


def test_a_new_sink_equals_the_old_one_though_spanner_is_shut_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario.generate(11, origin=time.time_ns() - 290 * SECOND, seconds=280)
    start, end = scenario.history.origin, scenario.history.horizon
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        config = configuration(
            tmp_path,
            sample_of(server),
            source={"start": format_rfc3339(start), "end": format_rfc3339(end)},
            spool={"keep": "7d"},
            spark={"master": "local[2]", "checkpoint": str(tmp_path / "checkpoint"), "trigger": "100ms"},
        )
        done = run("read", config)
        assert done.code == 0, done.err
    deliver(config)
    old = files(tmp_path / "events")
    assert len([path for path in old if path.endswith(".jsonl")]) >= 4
    assert manifests(tmp_path / "spool")[0].epoch == 1

    deliver(with_sink(config, name="second", path=str(tmp_path / "second")))
    assert files(tmp_path / "second") == old

    # Of a sink whose destination is lost, what is kept from a timestamp on is written again, byte for byte.
    late = start - start % MINUTE + 2 * MINUTE + 5 * SECOND
    assert run("spool", tmp_path / "spool", "--forget", "second").code == 0
    deliver(with_sink(config, name="second", path=str(tmp_path / "again"), start=format_rfc3339(late)))
    expected = {path: data for path, data in old.items() if _minute(path) >= format_rfc3339(late - 5 * SECOND)[:16]}
    assert files(tmp_path / "again") == expected
    assert 0 < len(expected) < len(old)
    assert f"committed after {format_rfc3339(late - 5 * SECOND - 1)}" in capsys.readouterr().err
    assert "incomplete before" in run("spool", tmp_path / "spool").out.decode()
    assert Spool.at(tmp_path / "spool").floor() == 1


def _minute(path: str) -> str:
    """The minute in a file's path, as RFC 3339 begins."""
    _, year, month, day, hour, minute, _ = path.split("/")
    return f"{year}-{month}-{day}T{hour}:{minute}"
