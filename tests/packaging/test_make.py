"""`make test` runs every lane, also those behind one that failed, and names failed tests and lanes at its end."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.project import ROOT

PROGRAM = """#!/bin/sh
case "$*" in
  "-m venv "*) for folder; do :; done; mkdir -p "$folder/bin"; cp "$0" "$folder/bin/python" ;;
  *" wheel "*) mkdir -p dist ;;
esac
case "$*" in $FAILING) echo "FAILED tests/test_a.py::test_b - it failed"; exit 1 ;; esac
"""
"""Stands for Python, uv and the linters: it fails if its arguments match a pattern of the shell."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The Makefile, with an environment whose programs test nothing."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "install", tmp_path / ".ci")
    for name in ("pyproject.toml", "tests/java.py", ".ci/lower_bounds.py", ".ci/pythons.py", "venv/.installed"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for name in ("python", "ruff", "mypy", "lint-imports", "uv"):
        program = tmp_path / "venv" / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(PROGRAM)
        program.chmod(0o755)
    return tmp_path


def make_test(project: Path, failing: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    programs = project / "venv" / "bin"
    given = ("MFLAGS", "ALSO", "RETRY", "AGAIN", "COVERAGE")  # make exports what its command line sets
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name not in given}
    own["PATH"] = f"{programs}:{own['PATH']}"
    return subprocess.run(
        ["make", "test", "VENV=venv", f"PYTHON={programs / 'python'}", *arguments],
        cwd=project,
        env={**own, "FAILING": failing, "JAVA_HOME": str(project)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_lane_runs_and_the_last_lines_name_the_tests_and_lanes_that_failed(project: Path) -> None:
    made = make_test(project, "*tests/peers*")
    assert made.returncode != 0
    *_, first, second, lanes, _ = made.stderr.splitlines()  # make's own line follows
    assert {first, second} == {"FAILED tests/test_a.py::test_b - it failed"}
    assert lanes.startswith("Failed: test-rest test-random. ")
    assert made.stdout.count(first) == 2
    assert (project / "venv" / "test-snippets.log").exists()


def test_a_lane_whose_environment_cannot_be_made_counts_as_failed(project: Path) -> None:
    made = make_test(project, "*pip install*pyspark*", "ALSO=test-delta")
    assert made.returncode != 0
    assert "Failed: test-delta. " in made.stderr


def test_pip_installs_what_uv_could_not(project: Path) -> None:
    made = make_test(project, "pip install --quiet *pyspark*", "ALSO=test-delta")
    assert made.returncode == 0
    assert "uv could not install pyspark==4.1.* " in made.stderr


def test_no_lane_is_named_when_all_pass(project: Path) -> None:
    made = make_test(project, "nothing")
    assert made.returncode == 0
    assert "Failed" not in made.stderr


def test_a_machine_without_a_newer_python_skips_its_lane_and_says_so(project: Path) -> None:
    made = make_test(project, "nothing", "ALSO=test-newest-python")
    assert made.returncode == 0
    assert "Skipped: no Python is found that is newer than " in made.stdout


def test_what_failed_runs_once_more_alone_and_is_named_if_it_then_passes(project: Path) -> None:
    made = make_test(project, "*caches/test-random tests/peers*", "RETRY=1")
    assert made.returncode == 0
    first, second = made.stderr.splitlines()[-2:]
    assert first == "Failed beside the others, and passed alone, in test-random:"
    assert second == "FAILED tests/test_a.py::test_b - it failed"


def test_what_fails_again_alone_fails_the_run(project: Path) -> None:
    made = make_test(project, "*caches/test-random *", "RETRY=1")
    assert made.returncode != 0
    assert "Failed: test-random. " in made.stderr
