"""A command loads what it needs, and no more: each takes its time before it begins."""

import subprocess
import sys

import click
import pytest

from connector.cli import cli


@pytest.mark.long(but=2)
@pytest.mark.parametrize("command", ["dead-letters", "pause", "reload", "resume", "self-test", "spool", "status"])
def test_a_command_that_does_not_read_spanner_does_not_load_its_client(command: str) -> None:
    code = (
        "import click, sys; from connector.cli import cli;"
        f"assert cli.get_command(click.Context(cli), {command!r}) is not None;"
        "print({'aiohttp', 'grpc', 'google.cloud.spanner_v1'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_the_help_loads_no_command_and_no_line_of_it_is_cut() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from connector.cli import cli;"
        "print(CliRunner().invoke(cli, ['--help'], prog_name='spanner-cdc', terminal_width=80).stdout);"
        "print({'aiohttp', 'grpc', 'google', 'pyarrow', 'pydantic', 'connector.cli.service'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    *shown, loaded = done.stdout.splitlines()
    assert (loaded, done.stderr) == ("set()", "")
    commands = shown[shown.index("Commands:") + 1 : -1]
    assert [line.split()[0] for line in commands] == cli.list_commands(click.Context(cli))
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)
