"""The commands that run a configuration, and that check it: ``read``, ``run``, ``backfill`` and ``check``.

What calls Spanner is imported by the commands that do: ``run --sink-only`` works without the extra ``reader``.
"""

import asyncio
import functools
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from connector.check.needs import NEEDS, needs_of, sections_of
from connector.check.offline import refuse
from connector.check.owners import other_owners
from connector.cli.common import (
    PRIORITY,
    common_options,
    fail,
    is_verbose,
    put,
    until_stopped,
)
from connector.config.loading import load
from connector.daemon import executors
from connector.daemon.sink import run_sink
from connector.daemon.states.report import configured_spool
from connector.daemon.stopped_tables import request_tables
from connector.errors import TRANSIENT, ConfigurationError, SpoolInUseError
from connector.log import Log
from connector.reader.stopping import StopRequest

_log = Log(__name__)


@click.command("read")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--stdin-lifeline", is_flag=True, help="Drain and exit when standard input ends.", hidden=True)
@click.option("--until-now", is_flag=True, help="Read up to Spanner's clock of the start, and exit.", hidden=True)
@common_options
def read_command(*, config: Path, stdin_lifeline: bool, until_now: bool) -> None:
    """Runs the daemon: reads the change stream of CONFIG into its spool."""
    from connector.daemon.read import read

    loaded = load(config, sections_of("read"))
    refuse(loaded, needs_of("read", loaded.source.reader))
    executors.take_over(loaded, config, ends_with_stdin=stdin_lifeline)
    stop = StopRequest(drain_timeout=loaded.drain_timeout)
    daemon = read(loaded, stop, until_now=until_now)
    try:
        sys.exit(asyncio.run(until_stopped(stop, daemon, ends_with_stdin=stdin_lifeline)))
    except SpoolInUseError as error:
        if not stdin_lifeline:
            raise
        fail(str(error), TRANSIENT, verbose=is_verbose())  # the daemon of a killed Spark query soon ends


@click.command("run")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--sink-only", is_flag=True, help="Only deliver: another process reads into the spool.")
@common_options
def run_command(*, config: Path, sink_only: bool) -> None:
    """Runs the daemon and the Spark sink of CONFIG as one service."""
    for owner in other_owners():
        _log.warning("a package's name is taken twice", what=owner)
    loaded = load(config)
    refuse(loaded, NEEDS["sink" if sink_only else "run"])
    stop = StopRequest(drain_timeout=loaded.drain_timeout)
    if sink_only:
        if "status" in loaded.model_fields_set:
            _log.warning(
                "no status page is served with --sink-only: the daemon's page, metrics and probes have this sink"
            )
        sys.exit(asyncio.run(until_stopped(stop, run_sink(loaded, config, stop))))
    from connector.check.findings import check_sink, warn
    from connector.daemon.run import run

    async def work() -> None:
        await check_sink(loaded)
        await run(loaded, config, stop, on_open=functools.partial(warn, loaded))

    sys.exit(asyncio.run(until_stopped(stop, work())))


@click.command("backfill")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--table", "tables", multiple=True, metavar="PATTERN", help="Only these tables; repeatable.")
@click.option("--stop", multiple=True, metavar="TABLE", help="Stop reading this table; repeatable.")
@click.option("--resume", multiple=True, metavar="TABLE", help="Read a stopped table further; repeatable.")
@click.option("--restart", multiple=True, metavar="TABLE", help="Read this table from its first row; repeatable.")
@click.option("--data-boost", is_flag=True, help="Read with Spanner's Data Boost, which does not load the instance.")
@click.option(
    "--rpc-priority", type=PRIORITY, default="medium", show_default=True, help="Priority of the reads at Spanner."
)
@common_options
def backfill_command(
    *,
    config: Path,
    stop: tuple[str, ...],
    resume: tuple[str, ...],
    restart: tuple[str, ...],
    **options: Any,
) -> None:
    """Delivers every row of CONFIG's tables as of one timestamp.

    Creates the spool if there is none, so that the stream begins right after that timestamp. Continues those that
    are not finished, or with --table the one of these tables; begins one if there is none. With --stop, --resume or
    --restart it only requests that of tables of a backfill that is not finished: a process that reads it follows before
    its next partitions.
    """
    if stop or resume or restart:
        _check_alone(*options)
        spool, _ = configured_spool(config)
        put("; ".join(request_tables(spool, stop=stop, resume=resume, restart=restart)))
        return
    from connector.check.findings import check_sink
    from connector.daemon.backfill import BackfillOptions, backfill

    loaded = load(config)
    refuse(loaded, NEEDS["backfill"])
    stopping = StopRequest(drain_timeout=loaded.drain_timeout)

    async def work() -> None:
        await check_sink(loaded)
        how = BackfillOptions(**options)
        await backfill(loaded, config, stopping, options=how)

    sys.exit(asyncio.run(until_stopped(stopping, work())))


def _check_alone(*names: str) -> None:
    """Checks that a request about tables comes without options of a backfill that starts or continues.

    Raises:
        ConfigurationError: one of them was given.
    """
    context = click.get_current_context()
    given = [name for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    typed = [one.opts[0] for one in context.command.params if one.name in given]
    if typed:
        why = "--stop, --resume and --restart only request that of a backfill that is not finished: leave it out"
        raise ConfigurationError([f"{option}: {why}" for option in typed])


@click.command("check")
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--for",
    "command",
    type=click.Choice(list(NEEDS)),
    default="run",
    show_default=True,
    help="Check only what this command needs.",
)
@common_options
def check_command(*, config: Path, command: str) -> None:
    """Checks CONFIG and all that it points at.

    Prints every error at once; or warnings, and what the sink will need of its destination's quotas.
    """
    from connector.check.findings import findings_of

    for owner in other_owners():
        put(f"{config}: warning: {owner}")
    loaded = load(config, sections_of(command))
    needs = needs_of(command, loaded.source.reader)
    found = asyncio.run(findings_of(loaded, needs=needs))
    for warning in found.warnings:
        put(f"{config}: warning: {warning}")
    if found.errors:
        raise ConfigurationError(found.errors)
    put(f"{config}: no errors")
    for estimate in found.estimates:
        put(estimate)
