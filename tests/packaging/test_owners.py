"""Another distribution that has a package of ours is named by `check`, and by the first line of `run`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from connector.check.owners import other_owners
from tests.packaging.wheels import why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no wheel can be built: {why_not()}")

PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "some-connector"
version = "4.2"

[tool.setuptools]
packages = [{packages}]
package-dir = {{"" = "{root}"}}
"""
SAID = (
    "the distribution some-connector 4.2 has a package {}, too: files of the one may replace or hide those of the"
    " other. Give spanner-cdc-spark an environment of its own, or uninstall both and install spanner-cdc-spark again"
)


def installed(folder: Path, *packages: str, root: str = ".", editable: bool = False) -> Path:
    """Installs a distribution with those packages into an empty folder; returns what is to be on the import path."""
    source = folder / "source"
    for package in packages:
        (source / root / package).mkdir(parents=True)
        (source / root / package / "__init__.py").touch()
    listed = ", ".join(f'"{package}"' for package in packages)
    (source / "pyproject.toml").write_text(PROJECT.format(packages=listed, root=root))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    options = ["--ignore-installed", "--prefix", str(folder / "prefix"), *(["--editable"] if editable else [])]
    done = subprocess.run([*command, *options, str(source)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (packages_folder,) = (folder / "prefix").glob("lib/python*/site-packages")
    return packages_folder


def ended(folder: Path, command: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command whose configuration does not exist, with one more folder at the end of the import path."""
    code = f"import sys; sys.path.append({str(path)!r}); from connector.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-P", "-c", code, command, "absent.yaml"],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.long
def test_a_distribution_with_both_names_is_one_line_of_check_and_the_first_of_run(tmp_path: Path) -> None:
    path = installed(tmp_path, "connector", "spark_sink")
    line = SAID.format("connector and spark_sink")
    check, run = ended(tmp_path, "check", path), ended(tmp_path, "run", path)
    assert (check.returncode, run.returncode) == (2, 2)
    assert check.stdout == f"absent.yaml: warning: {line}\n"
    first, second = run.stderr.splitlines()
    assert first.partition(" ")[2] == f'WARNING a package\'s name is taken twice what="{line}"'
    assert second == check.stderr.rstrip()


@pytest.mark.long
@pytest.mark.parametrize("root", [".", "src"])
def test_an_editable_installation_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    path = installed(tmp_path, "connector", root=root, editable=True)
    for metadata in path.glob("*.dist-info/top_level.txt"):
        metadata.unlink()  # only setuptools writes it
    monkeypatch.syspath_prepend(path)
    assert other_owners() == [SAID.format("connector")]


@pytest.mark.long
def test_neither_distributions_with_other_names_nor_the_own_one_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(installed(tmp_path, "connectors", "spark_sinks"))
    assert other_owners() == []
