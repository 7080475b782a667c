"""`.ci/pythons.py` with programs that stand for Pythons, as PATH, pyenv and uv have them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(name="project")
def _project(tmp_path: Path) -> Path:
    """A project whose classifiers name three versions that are newer than any Python."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "pythons.py", tmp_path / ".ci")
    classifiers = [f"Programming Language :: Python :: {version}" for version in ("3", "3.900", "3.901", "3.903")]
    (tmp_path / "pyproject.toml").write_text(f"[project]\nclassifiers = {classifiers}\n")
    return tmp_path


def program(path: Path, says: str) -> str:
    """A program that says that it is a Python of a version; or fails, as a shim of pyenv's without one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\n" if says else "#!/bin/sh\nexit 127\n")
    path.chmod(0o755)
    return str(path)


def printed(project: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(project / ".ci" / "pythons.py"), *arguments],
        env={**os.environ, "HOME": str(project), "PYENV_ROOT": "", "XDG_DATA_HOME": "", "PATH": str(project / "bin")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.split()


def test_one_python_that_works_is_printed_for_each_named_version_the_oldest_first(project: Path) -> None:
    program(project / "bin" / "python3.900", says="")
    of_pyenv = program(project / ".pyenv" / "versions" / "3.900.1" / "bin" / "python3.900", says="3.900")
    on_path = program(project / "bin" / "python3.901", says="3.901")
    program(project / ".pyenv" / "versions" / "3.901.0" / "bin" / "python3.901", says="3.901")
    program(project / "bin" / "python3.902", says="3.902")
    of_uv = program(project / ".local" / "share" / "uv" / "python" / "3.903" / "bin" / "python3.903", says="3.903")
    assert printed(project) == [of_pyenv, on_path, of_uv]
    assert printed(project, "ends") == [of_pyenv, of_uv]
    assert printed(project, "newest") == [of_uv]


def test_a_single_python_is_printed_once(project: Path) -> None:
    only = program(project / "bin" / "python3.901", says="3.901")
    assert printed(project, "ends") == [only]


def test_no_newest_is_printed_where_none_is_newer_than_the_python_that_asks(project: Path) -> None:
    own = "{}.{}".format(*sys.version_info)
    (project / "pyproject.toml").write_text(f'[project]\nclassifiers = ["Programming Language :: Python :: {own}"]\n')
    program(project / "bin" / f"python{own}", says=own)
    assert printed(project, "newest") == []
    assert printed(project) != []
