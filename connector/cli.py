"""The command ``spanner-cdc``: its options, and exit codes; every error is one line on stderr.

Exit codes: 0 done, 1 failed, 2 invalid usage or configuration, 3 data no longer retained, 130 interrupted.
"""

import asyncio
import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson

from connector import log
from connector.commands import dead_letters, executors, reports
from connector.commands import run as service
from connector.commands.audit import AuditReport, audit, audit_request
from connector.commands.backfill import BackfillOptions, backfill
from connector.commands.check import check_sink, findings_of, warn
from connector.commands.lifeline import ended_with_stdin
from connector.commands.read import read
from connector.commands.tail import tail
from connector.commands.verify import verified_stream, verify
from connector.config.loading import load, validated
from connector.core.position import Position
from connector.core.timestamps import SECOND, format_rfc3339, parse
from connector.errors import TRANSIENT, ConfigurationError, SpoolInUseError, line_and_exit_code
from connector.process import collect_rarely
from connector.reader.stopping import Stop, on_signals
from connector.spool import gaps
from connector.spool.consumers import forget
from connector.spool.reading import Spool

EMULATOR_HOST = "SPANNER_EMULATOR_HOST"
INTERRUPTED = 130
_THREADS_TIMEOUT = 1.0
"""Seconds that threads have to end after a stop."""

_AUDIT_DRAIN = 30 * SECOND
"""Nanoseconds that an audit has to end after a stop."""

_PRIORITY = click.Choice(["low", "medium", "high"])


@dataclass(frozen=True, slots=True)
class _Common:
    verbose: bool
    emulator_host: str | None


Command = Callable[..., None]


def _common(command: Command) -> Command:
    """Adds the options that every command has, passed to it as ``common``, and prints its errors."""

    def wrapped(*, log_format: str, verbose: bool, emulator_host: str | None, **options: object) -> None:
        log.configure(json=log_format == "json", verbose=verbose)
        common = _Common(verbose, emulator_host or os.environ.get(EMULATOR_HOST))
        try:
            command(common=common, **options)
        except BrokenPipeError:
            sys.stdout = None  # its reader is gone, so that a flush at exit would fail
            sys.exit(0)
        except Exception as error:  # noqa: BLE001 - an unexpected error is printed as one line, too
            _fail(*line_and_exit_code(error), verbose=verbose)

    wrapped.__doc__ = command.__doc__
    wrapped.__name__ = command.__name__
    for option in (
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            help="Format of the logs.",
        ),
        click.option("--verbose", is_flag=True, help="Log more, and print tracebacks of errors."),
        click.option("--emulator-host", metavar="HOST:PORT", help=f"Emulator of Spanner; default: ${EMULATOR_HOST}."),
    ):
        wrapped = option(wrapped)
    return wrapped


def _fail(message: str, code: int, *, verbose: bool) -> None:
    if verbose:
        error = sys.exc_info()[1]
        click.echo(log.whereabouts(error) if error else "", err=True, nl=False)
    click.echo(f"spanner-cdc: {message}", err=True)
    sys.exit(code)


def _print(report: object, text: str, *, as_json: bool) -> None:
    click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2) if as_json else text)


def _database(command: Command) -> Command:
    for name, text in (
        ("--database", "Name of the database."),
        ("--instance", "Name of the Spanner instance."),
        ("--project", "Id of the Google Cloud project."),
    ):
        command = click.option(name, required=True, help=text)(command)
    return command


async def _until_stopped(stop: Stop, work: Coroutine[object, object, None], *, ends_with_stdin: bool = False) -> int:
    """Runs ``work`` until it ends or a signal stops it; returns the exit code."""
    with suppress(asyncio.CancelledError):  # a second signal cancels this task
        async with on_signals(stop), ended_with_stdin(stop, wanted=ends_with_stdin):
            await work
    code = INTERRUPTED if stop.interrupted else 0
    if stop.requested:  # a thread may be blocked in a write to a pipe that nobody reads, and must not keep the process
        asyncio.get_running_loop().call_later(_THREADS_TIMEOUT, os._exit, code)
    return code


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="spanner-cdc-spark")
def cli() -> None:
    """Cloud Spanner change streams as transaction-complete, commit-ordered events."""


@cli.command("tail")
@_database
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
@click.option("--database-role", help="Database role, for fine-grained access control.")
@click.option("--endpoint", help="Regional or private endpoint of Spanner.")
@click.option("--workers", default=1, show_default=True, help="Number of processes that read.")
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
            raise ConfigurationError(["--start and --start-position exclude each other: give one of them"])
        start = format_rfc3339(after.commit_timestamp)
    config = validated(
        {
            "source": {**source, "start": "now" if start is None else start, "tables": {"include": tables}},
            "envelope": {"format": envelope},
        }
    )
    name = str(config.source.name)
    if after is not None and after.stream != name:
        raise ConfigurationError([f"--start-position: it belongs to change stream {after.stream}, not {name}"])
    stop = Stop(drain_timeout=config.drain_timeout)
    out, host = sys.stdout.buffer, common.emulator_host
    work = tail(config.source, config.envelope, out, stop, emulator_host=host, after=after)
    sys.exit(asyncio.run(_until_stopped(stop, work)))


def _position(text: str) -> Position:
    try:
        return Position.from_text(text)
    except ValueError as error:
        raise ConfigurationError([f"--start-position: {error}"]) from None


@cli.command("read")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--stdin-lifeline", is_flag=True, help="Drain and exit when standard input ends.", hidden=True)
@_common
def read_command(*, common: _Common, config: Path, stdin_lifeline: bool) -> None:
    """Runs the daemon: reads the change stream of CONFIG into its spool."""
    loaded = load(config)
    executors.take_over(loaded, config, emulator_host=common.emulator_host, ends_with_stdin=stdin_lifeline)
    stop = Stop(drain_timeout=loaded.drain_timeout)
    daemon = read(loaded, stop, emulator_host=common.emulator_host)
    try:
        sys.exit(asyncio.run(_until_stopped(stop, daemon, ends_with_stdin=stdin_lifeline)))
    except SpoolInUseError as error:
        if not stdin_lifeline:
            raise
        _fail(str(error), TRANSIENT, verbose=common.verbose)  # the daemon of a killed Spark query soon ends


@cli.command("run")
@click.argument("config", type=click.Path(path_type=Path))
@_common
def run_command(*, common: _Common, config: Path) -> None:
    """Runs the daemon and the Spark sink of CONFIG as one service."""
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

    sys.exit(asyncio.run(_until_stopped(stop, work())))


@cli.command("backfill")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--table", "tables", multiple=True, metavar="PATTERN", help="Only these tables; repeatable.")
@click.option("--data-boost", is_flag=True, help="Read with Spanner's Data Boost, which does not load the instance.")
@click.option(
    "--rpc-priority",
    type=click.Choice(["low", "medium", "high"]),
    default="medium",
    show_default=True,
    help="Priority of the reads at Spanner.",
)
@_common
def backfill_command(*, common: _Common, config: Path, **options: Any) -> None:
    """Delivers every row of CONFIG's tables as of one timestamp.

    Creates the spool if there is none, so that the stream begins right after that timestamp. Continues a backfill that
    is not finished.
    """
    loaded = load(config)
    stop = Stop(drain_timeout=loaded.drain_timeout)

    async def work() -> None:
        await check_sink(loaded, emulator_host=common.emulator_host)
        how = BackfillOptions(**options)
        await backfill(loaded, config, stop, emulator_host=common.emulator_host, verbose=common.verbose, options=how)

    sys.exit(asyncio.run(_until_stopped(stop, work())))


@cli.command("discover")
@_database
@click.option("--database-role", help="Database role, for fine-grained access control.")
@click.option("--endpoint", help="Regional or private endpoint of Spanner.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_common
def discover_command(*, common: _Common, as_json: bool, **source: object) -> None:
    """Lists the change streams of a database.

    With their options, and the tables, columns and keys that they watch.
    """
    config = validated({"source": {**source, "change_stream": "unnamed"}})
    streams = asyncio.run(reports.discovered(config.source, emulator_host=common.emulator_host))
    _print(streams, reports.streams_text(streams), as_json=as_json)


@cli.command("check")
@click.argument("config", type=click.Path(path_type=Path))
@_common
def check_command(*, common: _Common, config: Path) -> None:
    """Checks CONFIG and all that it points at.

    Prints every error at once; or warnings, and what the sink will need of its destination's quotas.
    """
    loaded = load(config)
    found = asyncio.run(findings_of(loaded, emulator_host=common.emulator_host))
    for warning in found.warnings:
        click.echo(f"{config}: to know: {warning}")
    if found.errors:
        raise ConfigurationError(found.errors)
    click.echo(f"{config}: no errors")
    for estimate in found.estimates:
        click.echo(estimate)


@cli.command("spool")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--forget", "forgotten", metavar="CONSUMER", help="Drop a consumer: no epoch is kept for it any more.")
@click.option("--restart-at", metavar="TIMESTAMP", help="Record a gap up to this RFC 3339 timestamp.")
@_common
def spool_command(*, common: _Common, path: str, as_json: bool, forgotten: str | None, restart_at: str | None) -> None:
    """Describes the spool at PATH.

    Prints the ranges, rows and bytes of its epochs, its gaps, and its consumers and their lag.
    """
    spool = Spool.at(path)
    if forgotten is not None and restart_at is not None:
        raise ConfigurationError(["--forget and --restart-at exclude each other: run one after the other"])
    if restart_at is not None:
        click.echo(_restarted(spool, restart_at))
        return
    if forgotten is not None:
        forget(spool, forgotten)
        click.echo(f"forgot consumer {forgotten}")
        return
    report = reports.spool_report(spool)
    _print(report, reports.spool_text(report), as_json=as_json)


def _restarted(spool: Spool, timestamp: str) -> str:
    try:
        restart = parse(timestamp)
    except (ValueError, IndexError):
        raise ConfigurationError(
            [f"--restart-at: {timestamp!r} is not a valid RFC 3339 timestamp such as 2026-01-31T12:00:00Z"]
        ) from None
    gap = gaps.restart_at(spool, restart, now=time.time_ns())
    return (
        f"epoch {gap.epoch} is a gap: what was committed after {format_rfc3339(gap.watermark_low)} and before"
        f" {format_rfc3339(restart)} is not in this spool; the daemon continues from there."
        " `spanner-cdc backfill CONFIG` reads the tables again, as of a timestamp after the gap; rows that were deleted"
        " within it stay"
    )


@cli.command("audit")
@click.argument("target", metavar="PATH|CONFIG")
@click.option("--from", "start", metavar="TIMESTAMP", help="First commit timestamp; default: the first that is kept.")
@click.option("--to", "end", metavar="TIMESTAMP", help="Last commit timestamp; default: the spool's watermark.")
@click.option("--sample", metavar="PERCENT", help="Share of the minutes to read, such as 10%; drawn by hash.")
@click.option("--rpc-priority", type=_PRIORITY, default="low", show_default=True, help="Priority of the queries.")
@click.option("--database-role", help="Database role, for fine-grained access control.")
@click.option("--endpoint", help="Regional or private endpoint of Spanner.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_common
def audit_command(*, common: _Common, target: str, as_json: bool, **options: str) -> None:
    """Compares a spool with its change stream.

    Reads a past range of the change stream again and compares it with the spool at PATH, or the one of CONFIG,
    transaction by transaction. The exit code is 1 if anything is found. The daemon may run meanwhile.
    """
    request = audit_request(target, **options)
    stop = Stop(drain_timeout=_AUDIT_DRAIN)
    planned: list[AuditReport] = []
    work = audit(request, stop, emulator_host=common.emulator_host, planned=planned.append)
    try:
        asyncio.run(_until_stopped(stop, work))
    finally:
        for report in planned:
            _print(report.to_json(), report.to_text(), as_json=as_json)
    if stop.requested:  # 0 would say that nothing is wrong
        sys.exit(INTERRUPTED)
    sys.exit(1 if any(report.findings.total for report in planned) else 0)


@cli.command("verify")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--at", metavar="TIMESTAMP", help="Timestamp of the rows; default: the last that is delivered.")
@click.option("--against", metavar="DATABASE", help="Another database: projects/P/instances/I/databases/D.")
@click.option("--show-keys", is_flag=True, help="Print the keys of rows that differ: they are values of your data.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_common
def verify_command(*, common: _Common, config: Path, show_keys: bool, as_json: bool, **options: str | None) -> None:
    """Compares the destination of CONFIG, or another database, with Spanner.

    The rows are those as of one timestamp. The exit code is 1 if any row differs.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that files on disk are removed
    loaded, host = load(config), common.emulator_host
    stream = asyncio.run(verified_stream(loaded, emulator_host=host))
    report = verify(loaded, stream, **options, emulator_host=host)
    _print(report.to_json(show_keys=show_keys), report.to_text(show_keys=show_keys), as_json=as_json)
    sys.exit(1 if report.total else 0)


@cli.group("dead-letters")
def dead_letters_group() -> None:
    """Lists and replays events that the destination rejected."""


@dead_letters_group.command("list")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_common
def list_dead_letters_command(*, common: _Common, config: Path, as_json: bool) -> None:
    """Counts the dead letters of CONFIG's sink, by table and reason."""
    sys.exit(dead_letters.run(config, "list", *(["--json"] if as_json else []), verbose=common.verbose))


@dead_letters_group.command("replay")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--table", help="Only dead letters of this table.")
@_common
def replay_dead_letters_command(*, common: _Common, config: Path, table: str | None) -> None:
    """Writes the dead letters of CONFIG's sink again.

    Those that are rejected again are kept, and the exit code is 1.
    """
    selected = [f"--table={table}"] if table is not None else []
    sys.exit(dead_letters.run(config, "replay", *selected, verbose=common.verbose))


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
