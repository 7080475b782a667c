"""A command whose stdout or stderr is closed, full or no longer read ends as other programs do, without a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from connector.spool.manifest import SourceName
from connector.spool.reading import Spool
from connector.spool.writing import initialize

COMMAND = (sys.executable, "-m", "connector")


def done(redirected: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The end of a command whose streams a shell has redirected."""
    script = f'"$@" {redirected}'
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", *COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.long(but=3)
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("check", "--help")], ids=" ".join)
@pytest.mark.parametrize(
    ("redirected", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_a_stdout_that_cannot_be_written_is_one_line_and_exit_code_1(
    arguments: tuple[str, ...], redirected: str, why: str
) -> None:
    ended = done(redirected, *arguments)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"spanner-cdc: cannot write to standard output: {why}. ")


@pytest.mark.long(but=1)
@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full"])
def test_a_stderr_that_cannot_be_written_changes_no_exit_code(redirected: str, tmp_path: Path) -> None:
    ended = done(redirected, "check", str(tmp_path / "absent.yaml"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", "")


@pytest.mark.long
def test_a_stderr_that_nobody_reads_changes_no_exit_code(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "check", str(tmp_path / "absent.yaml")]
    ended = subprocess.run(command, stderr=writing, stdout=subprocess.PIPE, check=False, timeout=300)
    os.close(writing)
    assert (ended.returncode, ended.stdout) == (2, b"")


def test_a_stdout_that_nobody_reads_any_more_is_an_end_without_a_message() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run([*COMMAND, "--help"], stdout=writing, stderr=subprocess.PIPE, check=False, timeout=300)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_the_verdict_is_the_same_though_nobody_reads_it(tmp_path: Path) -> None:
    name = SourceName(project="p", instance="in", database="d", change_stream="S")
    initialize(Spool.at(str(tmp_path / "spool")), name, 1, "now", (), default_schema="d")
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "status", str(tmp_path / "spool")]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=300)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_no_file_takes_the_number_of_a_stream_that_is_closed() -> None:
    code = (
        "from connector.streams import open_streams; open_streams(); import os;"
        " os._exit(0 if os.open('/dev/zero', os.O_RDONLY) > 2 else 1)"
    )
    script = '"$@" <&- >&- 2>&-'
    ended = subprocess.run(["/bin/sh", "-c", script, "sh", sys.executable, "-c", code], check=False, timeout=300)
    assert ended.returncode == 0
