"""`.ci/commit_subjects.py` in real repositories."""

import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "commit_subjects.py"
LONG = "x" * 73

Check = Callable[[Path, str], int]


@pytest.fixture(name="check")
def _check() -> Check:
    main: Check = runpy.run_path(str(SCRIPT))["main"]
    return main


def git(folder: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(folder), *settings, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, subject: str) -> str:
    git(folder, "commit", "--allow-empty", "-m", f"{subject}\n\n{'a longer body ' * 10}")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(name="repository")
def _repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def test_a_subject_of_73_characters_after_the_base_fails_and_is_named(
    check: Check, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = commit(repository, "base")
    commit(repository, "y" * 72)
    assert check(repository, base) == 0
    faulty = commit(repository, LONG)
    assert check(repository, base) == 1
    message = capsys.readouterr().err
    assert f"commit {faulty[:7]}" in message
    assert f"its subject has 73 characters, more than 72: {LONG}" in message


def test_commits_up_to_the_base_and_merges_are_exempt(check: Check, repository: Path) -> None:
    base = commit(repository, LONG)
    commit(repository, f"Merge branch '{LONG}'")
    assert check(repository, base) == 0


def test_a_shallow_clone_without_the_base_passes(check: Check, repository: Path, tmp_path: Path) -> None:
    base = commit(repository, "base")
    commit(repository, LONG)
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", repository.as_uri(), str(shallow))
    assert check(shallow, base) == 0


def test_a_folder_without_a_repository_or_git_passes(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(tmp_path, "f56310b") == 0
    monkeypatch.setenv("PATH", "")
    assert check(tmp_path, "f56310b") == 0
