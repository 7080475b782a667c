"""Runs `spanner-cdc` with two faults: `tail` of the stream of whole rows omits an event, `run` alters one in a file."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

COMMAND = [sys.executable, "-m", "connector", *sys.argv[1:]]


def altered(config: Path) -> None:
    """Changes a column of the first event of a table in the files of a sink."""
    folder = Path(yaml.safe_load(config.read_text())["sink"]["path"])
    file = min(path for path in folder.rglob("*.jsonl") if "_keyed" in path.as_posix())
    first, *rest = file.read_text().splitlines(keepends=True)
    before, found, after = first.rpartition('"note":')
    assert found
    file.write_text("".join([before, found, '"altered"}', after[after.index("}") + 1 :], *rest]))


if sys.argv[1] == "tail" and any(name.endswith("_whole") for name in sys.argv):
    done = subprocess.run(COMMAND, stdout=subprocess.PIPE, check=True)
    lines = done.stdout.splitlines(keepends=True)
    sys.stdout.buffer.writelines(lines[:2] + lines[3:])
elif sys.argv[1] == "run":
    subprocess.run(COMMAND, check=True)
    altered(Path(sys.argv[2]))
else:
    os.execv(sys.executable, COMMAND)  # signals reach it
