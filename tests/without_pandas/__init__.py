"""Hides pandas from tests and the processes that they start: Arrow imports it if it is there, which takes a while.

It is installed for Spark Connect only. A test that wants it takes the fixture ``pandas``.
"""

import os
import sys
from pathlib import Path

_FOLDER = str(Path(__file__).parent)


def hide() -> None:
    """Hides pandas from this process and those that it starts."""
    sys.path.insert(0, _FOLDER)
    os.environ["PYTHONPATH"] = with_hidden(os.environ.get("PYTHONPATH", ""))


def with_hidden(path: str) -> str:
    """A value of ``PYTHONPATH`` that hides pandas too."""
    return os.pathsep.join([_FOLDER, *filter(None, [path])])


def shown(path: list[str]) -> list[str]:
    """A path of imports that does not hide pandas."""
    return [folder for folder in path if folder != _FOLDER]
