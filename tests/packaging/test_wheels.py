"""The wheels hold what they should, and work where there is no clone."""

import json
import os
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import LINK
from tests.house.project import ROOT, files
from tests.packaging.wheels import REPOSITORY, build, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no wheel can be built: {why_not()}")

CALL = """
import sys
from importlib.metadata import entry_points
(command,) = entry_points(group="console_scripts", name="spanner-cdc")
sys.exit(command.load()())
"""
SINKS = """
import connector, spark_sink
from importlib.metadata import distribution
sinks = [one for one in distribution("spanner-cdc-spark").entry_points if one.group == "spanner_cdc.sinks"]
print(connector.__file__, spark_sink.__file__, *(one.name for one in sinks if one.load()), sep="\\n")
"""
READ = """
import json, subprocess, sys, time
import emulator
from connector.core.timestamps import format_rfc3339
scenario = emulator.Scenario.generate(7, origin=time.time_ns(), seconds=2, dialect="googlesql")
history = scenario.history
with emulator.ScriptedServer.started(scenario) as server:
    names = ("project", "instance", "database", "change_stream")
    options = [f"--{name.replace('_', '-')}={getattr(scenario, name)}" for name in names]
    bounds = [f"--{name}={format_rfc3339(at)}" for name, at in (("start", history.origin), ("end", history.horizon))]
    command = [sys.executable, "-P", "-m", "connector", "tail", *options, *bounds, f"--emulator-host={server.host}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
print(json.dumps([emulator.__file__, done.returncode, done.stdout.count("\\n"), done.stderr, len(scenario.committed)]))
"""


class Wheels(NamedTuple):
    """The folders of the unpacked wheels, and one that is outside of the clone."""

    service: Path
    testing: Path
    outside: Path


@pytest.fixture(name="wheels", scope="module")
def _wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    service, testing = build(tmp_path_factory.mktemp("wheels"))
    return Wheels(service, testing, tmp_path_factory.mktemp("outside"))


def python(wheels: Wheels, script: str, *arguments: str, paths: tuple[Path, ...]) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, *arguments],
        cwd=wheels.outside,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def held(folder: Path) -> set[Path]:
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if not path.parts[0].endswith(".dist-info") and "__pycache__" not in path.parts}


@pytest.mark.long
def test_the_wheel_holds_every_file_of_the_connector_and_the_sinks_and_nothing_else(wheels: Wheels) -> None:
    assert held(wheels.service) == {path for path in files() if path.parts[0] in ("connector", "spark_sink")}
    assert {Path("connector/py.typed"), Path("spark_sink/py.typed")} < held(wheels.service)
    assert [path for path in held(wheels.service) if path.parent == Path("connector/telemetry/page")]


def test_the_testing_wheel_holds_the_emulator_without_the_demo_and_the_double_of_bigquery(wheels: Wheels) -> None:
    wanted = {path for path in files() if path.parts[0] == "emulator" and path.parts[1] not in ("bigquery", "demo")}
    assert held(wheels.testing) == wanted


@pytest.mark.long
def test_the_command_runs_from_the_wheel_outside_of_the_clone(wheels: Wheels) -> None:
    assert "self-test" in python(wheels, CALL, "--help", paths=(wheels.service,))
    assert python(wheels, SINKS, paths=(wheels.service,)).split() == [
        str(wheels.service / "connector" / "__init__.py"),
        str(wheels.service / "spark_sink" / "__init__.py"),
        *("bigquery", "files", "spanner", "tables"),
    ]


@pytest.mark.long
def test_a_program_with_both_wheels_reads_the_scripted_server_outside_of_the_clone(wheels: Wheels) -> None:
    file, code, events, errors, committed = json.loads(python(wheels, READ, paths=(wheels.testing, wheels.service)))
    assert Path(file).is_relative_to(wheels.testing)
    assert (code, events) == (0, committed), errors


@pytest.mark.parametrize("which", ["service", "testing"])
def test_a_wheel_names_its_license_and_holds_the_text(wheels: Wheels, which: str) -> None:
    (path,) = getattr(wheels, which).glob("*.dist-info/METADATA")
    assert Parser().parsestr(path.read_text())["License-Expression"] == "Apache-2.0"
    assert path.with_name("licenses").joinpath("LICENSE").read_text() == ROOT.joinpath("LICENSE").read_text()


@pytest.mark.parametrize("which", ["service", "testing"])
def test_the_description_of_a_wheel_has_only_links_that_work_on_an_index(wheels: Wheels, which: str) -> None:
    (path,) = getattr(wheels, which).glob("*.dist-info/METADATA")
    described = Parser().parsestr(path.read_text())
    assert described["Description-Content-Type"] == "text/markdown"
    text = str(described.get_payload())
    assert text.startswith("# spanner-cdc-spark")
    assert [link for link in LINK.findall(text) if not link.startswith("https://")] == []


def test_a_wheel_has_the_links_that_the_owner_named_and_no_others(wheels: Wheels) -> None:
    (path,) = wheels.service.glob("*.dist-info/METADATA")
    assert Parser().parsestr(path.read_text()).get_all("Project-URL") == [
        f"Repository, {REPOSITORY}",
        f"Issues, {REPOSITORY}/issues",
        f"Changelog, {REPOSITORY}/blob/main/CHANGELOG.md",
    ]


def test_both_distributions_have_one_version_and_the_changelog_a_section_of_it(wheels: Wheels) -> None:
    (service,), (testing,) = (folder.glob("*.dist-info/METADATA") for folder in (wheels.service, wheels.testing))
    (version,) = {Parser().parsestr(path.read_text())["Version"] for path in (service, testing)}
    assert f"spanner-cdc-spark[reader]=={version}" in Parser().parsestr(testing.read_text()).get_all(
        "Requires-Dist", []
    )
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text()
