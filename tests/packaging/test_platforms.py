"""The package installs beside the libraries that platforms have, and changes none of them: deploy/constraints."""

import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.house.project import ROOT
from tests.packaging.wheels import build

PLATFORMS = sorted((ROOT / "deploy/constraints").glob("*.txt"))
JOBS = runpy.run_path(str(ROOT / ".ci/lower_bounds.py"))["JOBS"]
LOADED = (
    "import connector.spool.storage.gcs, spark_sink, spark_sink.sinks.bigquery.client, spark_sink.sinks.files.sink_type"
)


def pins(file: Path) -> dict[str, str]:
    """The names of a platform's libraries, with their versions; of some only the minor one is published."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    found = [re.fullmatch(r"([a-z0-9-]+)==([0-9][0-9a-z.]*?)(?:\.\*)?", line) for line in lines]
    assert all(found), lines
    return {one[1]: one[2] for one in found if one}


@pytest.mark.parametrize("file", PLATFORMS, ids=lambda file: file.stem)
def test_what_a_platform_has_is_new_enough_for_jobs(file: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *(one for extra in JOBS for one in project["optional-dependencies"][extra])]
    has = pins(file)
    too_old = [
        one for each in needed if (one := Requirement(each)).name in has and Version(has[one.name]) not in one.specifier
    ]
    assert too_old == []


def test_each_list_says_where_it_is_from_and_the_page_of_clusters_names_it() -> None:
    page = (ROOT / "docs/deployment/spark-clusters.md").read_text()
    for file in PLATFORMS:
        head = file.read_text().partition("\n#\n")
        assert re.search(r"Python 3\.\d+", head[0]), file
        assert head[2].startswith("# From: "), file
        assert f"deploy/constraints/{file.name}" in page


@pytest.mark.slow
@pytest.mark.parametrize("file", PLATFORMS, ids=lambda file: file.stem)
def test_a_job_is_installed_beside_a_platforms_libraries_and_changes_none(file: Path, tmp_path: Path) -> None:
    (version,) = re.findall(r"Python (3\.\d+)", file.read_text().partition("\n#\n")[0])
    base = runpy.run_path(str(ROOT / ".ci/pythons.py"))["installed"](version)
    if base is None:
        pytest.skip(f"Python {version} is not installed")
    build(tmp_path)
    (wheel,) = tmp_path.rglob("spanner_cdc_spark-*.whl")
    subprocess.run([base, "-m", "venv", tmp_path / "venv"], check=True)

    def python(*arguments: str) -> str:
        command: list[str] = [str(tmp_path / "venv/bin/python"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pip = ("-m", "pip", "--disable-pip-version-check")
    python(*pip, "install", "--quiet", "--no-compile", "--requirement", str(file))
    python(*pip, "check")
    before = set(python(*pip, "freeze").splitlines())
    assert len(before) >= len(pins(file))
    python(*pip, "install", "--quiet", "--no-compile", "--constraint", str(file), f"{wheel}[gcs,bigquery,avro]")
    assert before - set(python(*pip, "freeze").splitlines()) == set()
    assert python(*pip, "check") == "No broken requirements found.\n"
    python("-c", LOADED)
