"""The command ``spanner-cdc``: options in, exit code out; every error is one line on stderr.

Exit codes: 0 done, 1 failed, 2 usage or configuration refused, 3 data no longer retained, 130 interrupted.
"""

import asyncio
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
import orjson

from connector import log
from connector.commands import reports
from connector.commands import run as service
from connector.commands.check import check_sink, findings_of, warn
from connector.commands.lifeline import cut_with_stdin
from connector.commands.read import read
from connector.commands.tail import tail
from connector.config import load, validated
from connector.core.position import Position
from connector.core.timestamps import format_rfc3339, parse
from connector.errors import ConfigurationError, told
from connector.process import collect_rarely
from connector.reader.stopping import Stop, on_signals
from connector.spool import gaps
from connector.spool.consumers import forget
from connector.spool.reading import Spool

EMULATOR_HOST = "SPANNER_EMULATOR_HOST"
INTERRUPTED = 130
_PATIENCE = 1.0
"""Seconds that threads have to end after a stop."""


@dataclass(frozen=True, slots=True)
class _Common:
    verbose: bool
    emulator_host: str | None


Command = Callable[..., None]


def _common(command: Command) -> Command:
    """The options that every command has; they reach it as ``common``."""

    def wrapped(*, log_format: str, verbose: bool, emulator_host: str | None, **options: object) -> None:
        log.configure(json=log_format == "json", verbose=verbose)
        common = _Common(verbose, emulator_host or os.environ.get(EMULATOR_HOST))
        try:
            command(common=common, **options)
        except BrokenPipeError:
            sys.stdout = None  # whoever read it has gone; there is nobody to flush to
            sys.exit(0)
        except Exception as error:  # noqa: BLE001 - a fault of ours is one line, too
            _fail(*told(error), verbose=verbose)

    wrapped.__doc__ = command.__doc__
    wrapped.__name__ = command.__name__
    for option in (
        click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="How logs are written."),
        click.option("--verbose", is_flag=True, help="More logs, and tracebacks of failures."),
        click.option("--emulator-host", metavar="HOST:PORT", help=f"An emulator's address; default: ${EMULATOR_HOST}."),
    ):
        wrapped = option(wrapped)
    return wrapped


def _fail(message: str, code: int, *, verbose: bool) -> None:
    if verbose:
        error = sys.exc_info()[1]
        click.echo(log.whereabouts(error) if error else "", err=True, nl=False)
    click.echo(f"spanner-cdc: {message}", err=True)
    sys.exit(code)


def _database(command: Command) -> Command:
    for name, text in (("--database", "The database."), ("--instance", "The instance."), ("--project", "The project.")):
        command = click.option(name, required=True, help=text)(command)
    return command


def _run(stop: Stop, work: Coroutine[object, object, None]) -> None:
    """Runs ``work`` with signals that drain; exits with 130 if it was interrupted."""

    async def main() -> None:
        with suppress(asyncio.CancelledError):  # stopped at once
            async with on_signals(stop):
                await work
        if stop.asked:  # a thread may be stuck in a write to a pipe that nobody reads; it must not keep us
            code = INTERRUPTED if stop.interrupted else 0
            asyncio.get_running_loop().call_later(_PATIENCE, os._exit, code)

    asyncio.run(main())
    if stop.interrupted:
        sys.exit(INTERRUPTED)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="spanner-cdc-spark")
def cli() -> None:
    """Cloud Spanner change streams as transaction-complete, commit-ordered events."""


@cli.command("tail")
@_database
@click.option("--change-stream", required=True, help="The change stream.")
@click.option("--start", help="RFC 3339, now, or an offset like -15m.", show_default="now")
@click.option("--start-position", metavar="POSITION", help="Begin right after the event of this OpenCDC position.")
@click.option("--end", help="RFC 3339, now, or an offset like -15m; inclusive. Without it, tail goes on.")
@click.option("--heartbeat", default="1s", show_default=True, help="How far an idle partition may trail.")
@click.option("--envelope", type=click.Choice(["datastream", "opencdc"]), default="datastream", show_default=True)
@click.option("--table", "tables", multiple=True, metavar="PATTERN", help="Only these tables; repeatable.")
@click.option("--database-role", help="A role of fine-grained access control.")
@click.option("--endpoint", help="A regional or private Spanner endpoint.")
@click.option("--workers", default=1, show_default=True, help="How many processes read.")
@_common
def tail_command(
    *,
    common: _Common,
    envelope: str,
    tables: tuple[str, ...],
    start: str | None,
    start_position: str | None,
    **source: object,
) -> None:
    """Prints events as JSON lines on stdout, in commit order."""
    after = None if start_position is None else _position(start_position)
    if after is not None:
        if start is not None:
            raise ConfigurationError(["--start and --start-position both say where to begin: give one of them"])
        start = format_rfc3339(after.commit_timestamp)
    config = validated(
        {
            "source": {**source, "start": "now" if start is None else start, "tables": {"include": tables}},
            "envelope": {"format": envelope},
        }
    )
    name = str(config.source.name)
    if after is not None and after.stream != name:
        raise ConfigurationError([f"--start-position: it is of change stream {after.stream}, not {name}"])
    stop = Stop(drain_timeout=config.drain_timeout)
    out, host = sys.stdout.buffer, common.emulator_host
    _run(stop, tail(config.source, config.envelope, out, stop, emulator_host=host, after=after))


def _position(text: str) -> Position:
    try:
        return Position.from_text(text)
    except ValueError as error:
        raise ConfigurationError([f"--start-position: {error}"]) from None


@cli.command("read")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--stdin-lifeline", is_flag=True, help="Drain and end when standard input ends.", hidden=True)
@_common
def read_command(*, common: _Common, config: Path, stdin_lifeline: bool) -> None:
    """The daemon: reads the change stream of CONFIG into its spool."""
    loaded = load(config)
    stop = Stop(drain_timeout=loaded.drain_timeout)

    async def work() -> None:
        async with cut_with_stdin(stop, wanted=stdin_lifeline):
            await read(loaded, stop, emulator_host=common.emulator_host)

    _run(stop, work())


@cli.command("run")
@click.argument("config", type=click.Path(path_type=Path))
@_common
def run_command(*, common: _Common, config: Path) -> None:
    """The daemon and the Spark sink of CONFIG, as one service."""
    loaded = load(config)
    stop = Stop(drain_timeout=loaded.drain_timeout)

    async def work() -> None:
        await check_sink(loaded, emulator_host=common.emulator_host)
        await service.run(
            loaded,
            config,
            stop,
            emulator_host=common.emulator_host,
            verbose=common.verbose,
            on_open=functools.partial(warn, loaded),
        )

    _run(stop, work())


@cli.command("discover")
@_database
@click.option("--database-role", help="A role of fine-grained access control.")
@click.option("--endpoint", help="A regional or private Spanner endpoint.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@_common
def discover_command(*, common: _Common, as_json: bool, **source: object) -> None:
    """The change streams of a database, their options, and the tables, columns and keys that they watch."""
    config = validated({"source": {**source, "change_stream": "unnamed"}})
    streams = asyncio.run(reports.discovered(config.source, emulator_host=common.emulator_host))
    click.echo(orjson.dumps(streams, option=orjson.OPT_INDENT_2) if as_json else reports.streams_text(streams))


@cli.command("check")
@click.argument("config", type=click.Path(path_type=Path))
@_common
def check_command(*, common: _Common, config: Path) -> None:
    """Every fault of CONFIG and of what it points at, at once, and what to know before it runs."""
    loaded = load(config)
    found = asyncio.run(findings_of(loaded, emulator_host=common.emulator_host))
    for warning in found.warnings:
        click.echo(f"{config}: to know: {warning}")
    if found.faults:
        raise ConfigurationError(found.faults)
    click.echo(f"{config}: no faults")
    for estimate in found.estimates:
        click.echo(estimate)


@cli.command("spool")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--forget", "forgotten", metavar="CONSUMER", help="Drop a consumer, so that it keeps nothing any more.")
@click.option("--restart-at", metavar="TIMESTAMP", help="Leave a gap on record, and read on from there (RFC 3339).")
@_common
def spool_command(*, common: _Common, path: str, as_json: bool, forgotten: str | None, restart_at: str | None) -> None:
    """The epochs of a spool: ranges, rows, bytes, gaps, consumers and their lag."""
    spool = Spool.at(path)
    if forgotten is not None and restart_at is not None:
        raise ConfigurationError(["--forget and --restart-at are two things: do one after the other"])
    if restart_at is not None:
        click.echo(_restarted(spool, restart_at))
        return
    if forgotten is not None:
        forget(spool, forgotten)
        click.echo(f"forgot consumer {forgotten}")
        return
    report = reports.spool_report(spool)
    click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2) if as_json else reports.spool_text(report))


def _restarted(spool: Spool, timestamp: str) -> str:
    try:
        moment = parse(timestamp)
    except (ValueError, IndexError):
        raise ConfigurationError(
            [f"--restart-at: {timestamp!r} is no RFC 3339 timestamp, such as 2026-01-31T12:00:00Z"]
        ) from None
    gap = gaps.restart_at(spool, moment, now=time.time_ns())
    return (
        f"epoch {gap.epoch} is a gap: what was committed after {format_rfc3339(gap.watermark_low)} and before"
        f" {format_rfc3339(moment)} is not in this spool; the daemon goes on from there"
    )


@cli.group("dead-letters")
def dead_letters_group() -> None:
    """Events that the destination of a sink refused: what there is, and sending them once more."""


@dead_letters_group.command("list")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@_common
def list_dead_letters_command(*, common: _Common, config: Path, as_json: bool) -> None:
    """The dead letters of CONFIG's sink: how many of each table, and why."""
    _in_the_sinks(common, config, "list", *(["--json"] if as_json else []))


@dead_letters_group.command("replay")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--table", help="Only this table's.")
@_common
def replay_dead_letters_command(*, common: _Common, config: Path, table: str | None) -> None:
    """Sends the dead letters of CONFIG's sink once more; code 1 if some are refused again, which stay."""
    _in_the_sinks(common, config, "replay", *([f"--table={table}"] if table is not None else []))


def _in_the_sinks(common: _Common, config: Path, *arguments: str) -> None:
    """Runs a command of the sinks, which are not imported here; its exit code is ours, and signals go on to it."""
    as_json, _ = log.style()
    style = ["--log-format", "json" if as_json else "text", *(["--verbose"] if common.verbose else [])]
    command = [sys.executable, "-P", "-m", "spark_sink.dead_letters_command", *arguments, *style, "--", str(config)]
    # Its own session: a Ctrl-C at the terminal would reach it twice.
    process = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - a command of our own making
    before = {
        number: signal.signal(number, lambda number, _: process.send_signal(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code:
        sys.exit(code if code > 0 else 128 - code)


def main() -> None:
    """The entry point of ``spanner-cdc``."""
    collect_rarely()
    try:
        sys.exit(cli(prog_name="spanner-cdc", standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "spanner-cdc"
        _fail(f"{error.format_message()} Try {where} --help", error.exit_code, verbose=False)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
