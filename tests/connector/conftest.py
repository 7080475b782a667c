"""The places of tests' spools: both kinds of storage."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.spool.reading import Spool
from connector.spool.storage.failing import FAILING


@pytest.fixture(autouse=True)
def _nothing_fails() -> Iterator[None]:
    """Forgets which buckets failed in a test: what fails is known for the whole process."""
    yield
    FAILING._failing.clear()


@pytest.fixture(params=["local", "gs"])
def spool_path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place for a spool; on object storage without its pauses, so that time can be given."""
    if request.param == "local":
        return str(tmp_path / "spool")
    path = f"{request.getfixturevalue('bucket')}/a/spool"
    monkeypatch.setattr(type(Spool.at(path).storage), "rewrite_interval", 0.0)
    return path
