"""The path from the command to the main loop, as docs/architecture.md lists it."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import ScriptedServer
from emulator.scenario.scenario import steady
from tests.emulator.subjects import sample_of
from tests.integration.commands import configuration

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "architecture.md"
CALLS = 8


def documented_path() -> list[str]:
    """The numbered list of the page's section, each item's name as a module and a function."""
    section = PAGE.read_text().split("\n## From the command to the main loop\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE)


def traced_path(folder: Path) -> list[str]:
    """The path that ``spanner-cdc read`` takes on a scripted server, in a process of its own."""
    origin = time.time_ns() - 20 * SECOND
    scenario = steady(1, origin=origin, seconds=5, partitions=1, records_per_second_per_partition=2)
    history = scenario.history
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        bounds = {"start": format_rfc3339(history.origin), "end": format_rfc3339(history.horizon), "workers": 1}
        config = configuration(folder, sample_of(server), source=bounds)
        command = [sys.executable, "-m", "tests.connector.reader.traced_read", str(folder / "path.json"), "read"]
        done = subprocess.run(
            [*command, str(config)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
        )
    assert done.returncode == 0, done.stderr
    path: list[str] = json.loads((folder / "path.json").read_text())
    return path


@pytest.mark.long
def test_the_path_from_the_command_to_the_main_loop_is_short_and_as_documented(tmp_path: Path) -> None:
    path = traced_path(tmp_path)
    assert len(path) <= CALLS
    assert path == documented_path()
