"""Builds the project's wheels from the files that git lists, and without a network."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata, util
from pathlib import Path

from tests.house.project import ROOT, files

FOLDERS = ("connector", "docs", "emulator", "spark_sink")
PROJECTS = ("LICENSE", "pyproject.toml", "setup.py", "testing/LICENSE", "testing/README.md", "testing/pyproject.toml")

REPOSITORY = "https://git.example.com/our/spanner-cdc-spark"
"""The address at which the owner publishes it."""


def why_not() -> str | None:
    """Returns why this environment cannot build a wheel, or None."""
    if util.find_spec("pip") is None:
        return "pip is not installed"
    try:
        version = metadata.version("setuptools")
    except metadata.PackageNotFoundError:
        return "setuptools is not installed"
    return None if int(version.partition(".")[0]) >= 77 else f"setuptools {version} is older than 77"


def build(folder: Path) -> tuple[Path, Path]:
    """Builds both wheels below a folder and unpacks them.

    Returns:
        The folders of the service's and of the testing distribution.
    """
    for path in (*map(Path, PROJECTS), *(path for path in files() if path.parts[0] in FOLDERS)):
        copy = folder / "sources" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, copy)
    service, testing = folder / "sources", folder / "sources" / "testing"
    return _unpacked(service, folder / "service"), _unpacked(testing, folder / "testing")


def _unpacked(source: Path, target: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    wheels = target / "wheel"
    done = subprocess.run(
        [*command, "--wheel-dir", str(wheels), str(source)],
        env={**os.environ, "PROJECT_REPOSITORY": REPOSITORY},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target / "unpacked")
    return target / "unpacked"
