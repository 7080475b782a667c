"""The commands of the quickstart, typed one after the other as they stand, replicate a database into files."""

import re
import subprocess
from pathlib import Path
from signal import SIGINT

import pytest

from emulator import Workload
from tests.docs.clean import environment, shown
from tests.integration.commands import PATIENCE, until
from tests.integration.servers import MakeDatabase

FREE_PORT = "status: {port: 0}"
"""Added to the page's configuration, because tests run beside each other."""


@pytest.mark.emulator
@pytest.mark.spark
def test_the_commands_of_the_quickstart_replicate_a_database(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database(value_capture_type="NEW_ROW")
    workload = Workload(sample, seed=3)
    workload.run(mods=40)
    names = environment(
        PROJECT=sample.project,
        INSTANCE=sample.instance,
        DATABASE=sample.database_id,
        STREAM=sample.change_stream,
        SPANNER_EMULATOR_HOST=sample.host,
    )
    discover, tail, check, run, second_terminal = shown("docs/guide/quickstart.md", "bash")

    def typed(block: str) -> str:
        done = subprocess.run(["bash", "-e"], input=block, capture_output=True, text=True, cwd=tmp_path, env=names)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert sample.change_stream in typed(discover)
    assert typed(tail).count("\n") == len(workload.committed)
    typed(check.replace("END\nspanner-cdc", f"{FREE_PORT}\nEND\nspanner-cdc"))
    log = tmp_path / "log"
    with log.open("wb") as err:
        service = subprocess.Popen(["bash", "-ec", f"exec {run}"], cwd=tmp_path, env=names, stderr=err)
    try:
        found = lambda: any(tmp_path.glob("events/**/*.jsonl")) or service.poll() is not None  # noqa: E731
        until(found, "files", more=log.read_text)
        seen = typed(second_terminal)
        assert seen.startswith("Running since ")
        assert re.search(r"^events/\S+\.jsonl$", seen, re.MULTILINE)
        service.send_signal(SIGINT)
        assert service.wait(timeout=PATIENCE) == 130, log.read_text()
    finally:
        service.kill()
        service.wait()
    events = sum(file.read_bytes().count(b"\n") for file in tmp_path.glob("events/**/*.jsonl"))
    assert events == len(workload.committed)
