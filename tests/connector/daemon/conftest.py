"""A configuration, and a stub of the sink's process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from connector.config import Config, load
from tests.connector.daemon.sink_runs import Runs


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(
        "source: {project: p, instance: in, database: d, change_stream: S}\n"
        f"spool: {{path: {tmp_path / 'spool'}}}\nsink: {{path: {tmp_path / 'out'}}}\n"
    )
    return load(path)


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Runs]:
    """Makes `python -m spark_sink` the stub."""

    def made(*codes: str | int) -> Runs:
        runs = Runs(tmp_path, *codes)
        package = tmp_path / "spark_sink"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text((tmp_path / "stub.py").read_text().replace("sys.argv[1]", "'.'"))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return runs

    return made
