"""The commands without a configuration file: ``tail``, ``serve`` and ``discover``."""

import asyncio
import os
import sys

import click

from connector import log
from connector.cli.common import (
    common_options,
    database_options,
    is_verbose,
    print_report,
    until_stopped,
)
from connector.cli.discovering.destination import discovered_with_destination
from connector.cli.discovering.objects import discovered
from connector.cli.discovering.text import streams_text
from connector.conduit.handshake import check_connection, check_started_by_conduit, wants_details
from connector.conduit.serving import serve
from connector.config.loading import load, validated
from connector.core.position import Position
from connector.core.timestamps import format_rfc3339
from connector.errors import ConfigurationError
from connector.reader.stopping import StopRequest
from connector.reader.tail import tail


@click.command("tail")
@database_options
@click.option("--change-stream", required=True, help="Name of the change stream.")
@click.option("--start", help="First commit timestamp: RFC 3339, now, or an offset such as -15m.", show_default="now")
@click.option("--start-position", metavar="POSITION", help="Start right after the event with this OpenCDC position.")
@click.option("--end", help="Last commit timestamp, inclusive; without it tail runs until it is stopped.")
@click.option("--heartbeat", default="1s", show_default=True, help="How often an idle partition reports its progress.")
@click.option(
    "--envelope",
    type=click.Choice(["datastream", "opencdc"]),
    default="datastream",
    show_default=True,
    help="Format of the events.",
)
@click.option("--table", "tables", multiple=True, metavar="PATTERN", help="Tables to print; repeatable.")
@click.option(
    "--exclude-column", "excluded", multiple=True, metavar="PATTERN", help="Columns to leave out; repeatable."
)
@click.option("--database-role", help="Database role, for fine-grained access control.")
@click.option("--endpoint", help="Regional or private endpoint of Spanner; HOST:PORT of Spanner Omni.")
@click.option("--workers", default=1, show_default=True, help="Number of processes that read.")
@common_options
def tail_command(
    *,
    envelope: str,
    tables: tuple[str, ...],
    excluded: tuple[str, ...],
    start: str | None,
    start_position: str | None,
    **source: object,
) -> None:
    """Prints events as JSON lines on stdout, in commit order."""
    after = None if start_position is None else _position(start_position)
    if after is not None:
        if start is not None:
            raise ConfigurationError(["--start and --start-position exclude each other: give one of them"])
        start = format_rfc3339(after.commit_timestamp)
    kept = {"tables": {"include": tables}, "columns": {"exclude": excluded}}
    config = validated(
        {
            "source": {**source, "start": "now" if start is None else start, **kept},
            "envelope": {"format": envelope},
        }
    )
    name = str(config.source.name)
    if after is not None and after.stream != name:
        raise ConfigurationError([f"--start-position: it belongs to change stream {after.stream}, not {name}"])
    stop = StopRequest(drain_timeout=config.drain_timeout)
    work = tail(config.source, config.envelope, sys.stdout.buffer, stop, after=after)
    try:
        sys.exit(asyncio.run(until_stopped(stop, work)))
    except BrokenPipeError:
        sys.exit(0)  # its reader has seen enough


def _position(text: str) -> Position:
    try:
        return Position.from_text(text)
    except ValueError as error:
        raise ConfigurationError([f"--start-position: {error}"]) from None


@click.command("serve")
@common_options
def serve_command() -> None:
    """Gives OpenCDC records to a pipeline of Conduit, as a connector plugin that Conduit starts."""
    check_started_by_conduit(os.environ)
    os.environ[log.STYLE] = log.HCLOG  # first of all: go-plugin takes plain text for details, and Conduit drops those
    log.configure(json=True, verbose=is_verbose() or wants_details(os.environ))
    check_connection(os.environ)
    asyncio.run(serve())


@click.command("discover")
@database_options
@click.option("--database-role", help="Database role, for fine-grained access control.")
@click.option("--endpoint", help="Regional or private endpoint of Spanner; HOST:PORT of Spanner Omni.")
@click.option(
    "--config",
    metavar="CONFIG",
    is_eager=True,
    help="Configuration that names the database; also lists the tables of its sink's destination.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@common_options
def discover_command(*, as_json: bool, config: str | None, **source: object) -> None:
    """Lists the change streams of a database.

    With their options, the tables, columns and keys that they watch, and the types that they become in each sink.
    """
    if config is not None:
        given = [f"--{name.replace('_', '-')}" for name, value in source.items() if value not in (None, "cloud")]
        if given:
            raise ConfigurationError([f"--config: it names the database: omit {', '.join(given)}"])
        report = asyncio.run(discovered_with_destination(load(config)))
        print_report(report.to_json(), report.to_text(), as_json=as_json)
        return
    streams = asyncio.run(discovered(validated({"source": {**source, "change_stream": "unnamed"}}).source))
    print_report(streams, streams_text(streams), as_json=as_json)
