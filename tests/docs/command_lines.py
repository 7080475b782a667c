"""Checks that the commands and options of a ``spanner-cdc`` command line exist."""

import re

import click

from connector.cli import cli


def unknown(line: str) -> list[str]:
    """Returns the first word of a command line that is no command, or its options that do not exist."""
    command: click.Command = cli
    words = line.split()
    while words and isinstance(command, click.Group):
        if words[0].startswith("-"):
            break
        names = words[0].replace("\\", "").split("|")
        found = {name: command.get_command(click.Context(command), name) for name in names}
        missing = [name for name, one in found.items() if one is None]
        if missing:
            return missing
        command, words = found[names[0]] or command, words[1:]
    options = {name for option in (*command.params, *cli.params) for name in (*option.opts, *option.secondary_opts)} | {
        "--help"
    }
    written = [word.split("=")[0] for word in words if re.match(r"--[a-z]", word)]
    return [name for name in written if name not in options]
