"""The commands of the quickstart, typed one after the other as they stand, replicate a database into files."""

import os
import re
import subprocess
import sys
from pathlib import Path
from signal import SIGINT

import pytest

from emulator import Workload
from tests.docs.pages import blocks
from tests.integration.commands import Background
from tests.integration.servers import MakeDatabase

FREE_PORT = "status: {port: 0}"
"""Added to the page's configuration, because tests run beside each other."""


@pytest.mark.emulator
@pytest.mark.spark
def test_the_commands_of_the_quickstart_replicate_a_database(
    database: MakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = database(value_capture_type="NEW_ROW")
    workload = Workload(sample, seed=3)
    workload.run(mods=40)
    names = {
        "PROJECT": sample.project,
        "INSTANCE": sample.instance,
        "DATABASE": sample.database_id,
        "STREAM": sample.change_stream,
        "SPANNER_EMULATOR_HOST": sample.host,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    page = [block.text for block in blocks("bash") if block.place.startswith("docs/guide/quickstart.md")]
    discover, tail, check, run, second_terminal = page

    def typed(block: str) -> str:
        done = subprocess.run(["bash", "-e"], input=block, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert sample.change_stream in typed(discover)
    assert typed(tail).count("\n") == len(workload.committed)
    typed(check.replace("END\nspanner-cdc", f"{FREE_PORT}\nEND\nspanner-cdc"))
    assert run == "spanner-cdc run config.yaml\n"
    with Background("run", "config.yaml", log=tmp_path / "log", host=sample.host) as service:
        service.until(lambda: any(tmp_path.glob("events/**/*.jsonl")), "files", timeout=90)
        seen = typed(second_terminal)
        assert seen.startswith("Running since ")
        assert re.search(r"^events/\S+\.jsonl$", seen, re.MULTILINE)
        assert service.stop(SIGINT, timeout=60).code == 130, service.said
    events = sum(file.read_bytes().count(b"\n") for file in tmp_path.glob("events/**/*.jsonl"))
    assert events == len(workload.committed)
