"""Programs that have a session of Spark of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def ran(log: Path, program: str, *arguments: str) -> dict[str, Any]:
    """The output of a program of tests/spark_sink/sinks/tables, which prints JSON in its last line."""
    command = [sys.executable, "-m", f"tests.spark_sink.sinks.tables.{program}", *arguments]
    with log.open("wb") as file:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=file, env=os.environ, timeout=600, check=False)
    assert done.returncode == 0, log.read_text()[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
