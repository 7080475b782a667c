"""The command ``dead-letters``, which runs in a process of its own: the connector imports no sink."""

import sys
from pathlib import Path

import click

from connector.cli import sink_commands as dead_letters
from connector.cli.common import SuggestingGroup, common_options
from connector.cli.examples import epilog_of


@click.group("dead-letters", cls=SuggestingGroup)
def dead_letters_group() -> None:
    """Lists and replays events that the destination rejected."""


@dead_letters_group.command("list", epilog=epilog_of("dead-letters list"))
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@common_options
def list_dead_letters_command(*, config: Path, as_json: bool) -> None:
    """Counts the dead letters of CONFIG's sink, by table and reason."""
    sys.exit(dead_letters.run(config, "list", *(["--json"] if as_json else [])))


@dead_letters_group.command("replay", epilog=epilog_of("dead-letters replay"))
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--table", help="Only dead letters of this table.")
@click.option("--moved", is_flag=True, help="The store was moved: those that sink.dead_letters has are all.")
@common_options
def replay_dead_letters_command(*, config: Path, table: str | None, moved: bool) -> None:
    """Writes the dead letters of CONFIG's sink again.

    Those that are rejected again are kept, and the exit code is 1.
    """
    selected = [f"--table={table}"] if table is not None else []
    sys.exit(dead_letters.run(config, "replay", *selected, *(["--moved"] if moved else [])))
