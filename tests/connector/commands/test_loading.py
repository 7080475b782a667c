"""A command loads what it needs, and no more: each takes its time before it begins."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("command", ["dead-letters", "pause", "resume", "self-test", "spool", "status"])
def test_a_command_that_does_not_read_spanner_does_not_load_its_client(command: str) -> None:
    code = (
        "import click, sys; from connector.cli import cli;"
        f"assert cli.get_command(click.Context(cli), {command!r}) is not None;"
        "print({'aiohttp', 'grpc', 'google.cloud.spanner_v1'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("set()\n", "")
