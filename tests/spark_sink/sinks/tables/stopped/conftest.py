"""A sink of tables without Spark."""

from pathlib import Path

import pytest

from spark_sink.sinks.tables import delivery, replay
from tests.spark_sink.sinks.tables.stopped.scene import Destination, Scene


@pytest.fixture
def destination(monkeypatch: pytest.MonkeyPatch) -> Destination:
    made = Destination()
    for module in (delivery, replay):
        monkeypatch.setattr(module, "TablesWriter", made.writer)
    monkeypatch.setattr(delivery, "missing_library", lambda *_: "")
    return made


@pytest.fixture
def scene(tmp_path: Path, destination: Destination) -> Scene:
    """In mode merge."""
    return Scene(tmp_path, destination, format="delta")


@pytest.fixture
def appending(tmp_path: Path, destination: Destination) -> Scene:
    return Scene(tmp_path, destination, format="parquet", mode="append")
