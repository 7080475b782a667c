"""The command ``cuts``, which runs in a process of its own: the connector imports no sink."""

import sys
from pathlib import Path

import click

from connector.cli.common import common_options
from connector.cli.sink_commands import run_module


@click.command("cuts")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@common_options
def cuts_command(*, config: Path, as_json: bool) -> None:
    """Lists the published cuts of CONFIG's destination, oldest first.

    At a cut every table is complete up to one commit timestamp, but for those that it names with the reason.
    """
    sys.exit(run_module("spark_sink.cuts_command", ["--json"] if as_json else [], "--", str(config)))
