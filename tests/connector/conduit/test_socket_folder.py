"""The place of a plugin's socket."""

import tempfile
from pathlib import Path

import pytest

from connector.conduit.socket_folder import socket_folder
from connector.errors import ConfigurationError


def _no_folder() -> str:
    raise FileNotFoundError(2, "No usable temporary directory found")


def test_conduits_folder_is_used_where_there_is_no_folder_of_temporary_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        monkeypatch.setattr(tempfile, "gettempdir", _no_folder)
        with socket_folder(parent) as folder:
            assert folder.parent == Path(parent)
        assert not folder.exists()


def test_without_any_folder_the_variable_that_helps_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", _no_folder)
    with pytest.raises(ConfigurationError, match="set TMPDIR"), socket_folder(None):
        pass
