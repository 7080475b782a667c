"""`.ci/coverage_summary.py` on data that coverage.py wrote."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / ".ci" / "coverage_summary.py"
CONFIG = '[tool.coverage.run]\nbranch = true\nparallel = true\nsource = ["one", "other"]\n'
BRANCHES = "def f(x):\n    if x:\n        return 1\n    return 2\n"


def python(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "COVERAGE_FILE": str(folder / "data" / "coverage")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )


def test_the_data_of_two_processes_is_combined_into_totals_per_package(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(CONFIG)
    for package in ("one", "other"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "branches.py").write_text(BRANCHES)
    for argument in ("True", "False"):
        (tmp_path / f"run_{argument}.py").write_text(f"from one.branches import f\nf({argument})\n")
        assert python(tmp_path, "-m", "coverage", "run", f"run_{argument}.py").returncode == 0
    lines = python(tmp_path, str(SCRIPT)).stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["branch", "coverage", "statements", "branches", "missed", "covered"],
        ["one", "4", "2", "0", "100.0%"],
        ["other", "4", "2", "6", "0.0%"],
        ["total", "8", "4", "6", "50.0%"],
        ["least", "covered", "files:"],
        ["other/branches.py", "4", "2", "6", "0.0%"],
        ["one/__init__.py", "0", "0", "0", "100.0%"],
        ["one/branches.py", "4", "2", "0", "100.0%"],
        ["other/__init__.py", "0", "0", "0", "100.0%"],
    ]


def test_without_data_the_summary_fails_with_a_hint(tmp_path: Path) -> None:
    done = python(tmp_path, str(SCRIPT))
    assert done.returncode == 1
    assert "run the tests with COVERAGE=1 first" in done.stderr
