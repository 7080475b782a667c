"""`spanner-cdc run --sink-only` serves no status page, and says so to whom configures one."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from connector.cli import service
from connector.log import Log


@pytest.mark.parametrize("status", [None, {"port": 8081}])
def test_a_status_page_that_is_configured_and_not_served_is_warned_of(
    status: dict[str, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_sink(*_: object) -> None:
        pass

    said: list[str] = []
    monkeypatch.setattr(service, "run_sink", run_sink)
    monkeypatch.setattr(service, "refuse", lambda *_: None)
    monkeypatch.setattr(service, "other_owners", list)
    monkeypatch.setattr(Log, "warning", lambda _, text, **__: said.append(text))
    source = {"project": "project", "instance": "instance", "database": "database", "change_stream": "Everything"}
    node = {"source": source, "spool": {"path": str(tmp_path / "spool")}, "sink": {"path": str(tmp_path / "out")}}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(node if status is None else {**node, "status": status}))
    done = CliRunner().invoke(service.run_command, [str(path), "--sink-only"])
    assert done.exit_code == 0, done.output
    warned = [] if status is None else ["no status page is served with --sink-only"]
    assert [text.partition(":")[0] for text in said] == warned
