"""Prints the Pythons of this machine that pyproject.toml's classifiers name, a path a line, the oldest version first.

Of each version one is printed: the first that is found on PATH, among pyenv's and among uv's. With ``newest`` only the
newest is, unless it is the version of the Python that runs this; with ``ends`` the oldest and the newest.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

RELEASE = """
import sys, sysconfig, venv, ensurepip
if sys.version_info.releaselevel == "final" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print("%d.%d" % sys.version_info[:2])
"""
"""Prints the version of a Python that is no pre-release, has a lock, and makes environments."""


def main(which: str = "all") -> None:
    """Prints the paths."""
    classifiers = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["classifiers"]
    versions = sorted(int(found[1]) for one in classifiers if (found := re.search(r":: 3\.([0-9]+)$", one)))
    found = {minor: path for minor in versions if (path := installed(f"3.{minor}"))}
    if which == "newest":
        paths = [path for minor, path in found.items() if minor == max(found) > sys.version_info.minor]
    elif which == "ends":
        paths = [path for minor, path in found.items() if minor in (min(found), max(found))]
    else:
        paths = list(found.values())
    for path in paths:
        print(path)  # noqa: T201


def installed(version: str) -> str | None:
    """The path of a Python of that version, or None."""
    for candidate in candidates(version):
        done = subprocess.run([candidate, "-c", RELEASE], capture_output=True, text=True, check=False)  # noqa: S603
        if done.stdout.strip() == version:
            return candidate
    return None


def candidates(version: str) -> Iterator[str]:
    """Paths that a Python of that version may have; a shim of pyenv's on PATH may lead nowhere."""
    name = f"python{version}"
    if on_path := shutil.which(name):
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    uv = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "uv" / "python"
    for folder in (pyenv / "versions", uv):
        yield from map(str, sorted(folder.glob(f"*/bin/{name}")))


if __name__ == "__main__":
    main(*sys.argv[1:])
