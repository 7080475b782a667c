"""The parts that every command has: options, one line for an error, an exit code, and signals that drain."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from difflib import get_close_matches
from functools import partial, wraps
from typing import NoReturn

import click
import orjson

from connector import log
from connector.cli.typed_options import as_typed
from connector.core.health.hints import with_paths
from connector.daemon.lifeline import ended_with_stdin
from connector.errors import line_and_exit_code
from connector.extras import extras_named
from connector.process import EMULATOR_HOST
from connector.reader.stopping import StopRequest, on_signals
from connector.streams import printing
from connector.targets import is_configuration

INTERRUPTED = 130
_THREADS_TIMEOUT = 1.0
"""Seconds that threads have to end after a stop."""

PRIORITY = click.Choice(["low", "medium", "high"])


Command = Callable[..., None]


class SuggestingGroup(click.Group):
    """A group of commands; the error of an unknown one names a similar one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not (similar := get_close_matches(args[0], self.list_commands(ctx), 1)):
                raise
            raise click.UsageError(f"{error.message} Did you mean '{similar[0]}'?", ctx) from None


def common_options(command: Command) -> Command:
    """Adds the options that every command has, and prints its errors."""

    @wraps(command)
    def wrapped(*, log_format: str, verbose: bool, emulator_host: str | None, **options: object) -> None:
        log.configure(json=log_format == "json", verbose=verbose, named=partial(with_paths, **given_paths()))
        if emulator_host:  # for what is loaded here, and for the processes that are started
            os.environ[EMULATOR_HOST] = emulator_host
        try:
            with extras_named(f"spanner-cdc {click.get_current_context().info_name}"):
                command(**options)
        except Exception as error:  # noqa: BLE001 - an unexpected error is printed as one line, too
            line, code = line_and_exit_code(error)
            fail(with_paths(as_typed(line, _typed_options()), **given_paths()), code, verbose=verbose)

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


def is_verbose() -> bool:
    """True if the command was given ``--verbose``."""
    return bool(click.get_current_context().params["verbose"])


def _typed_options() -> list[str]:
    """The options of a command that has no configuration file, with their hyphens; none of another command."""
    given = click.get_current_context().command.params
    if any(isinstance(one, click.Argument) for one in given):
        return []
    return [name for one in given for name in one.opts]


def given_paths() -> dict[str, str]:
    """The paths of the configuration and of the spool that the command was given, for :func:`with_paths`."""
    given = click.get_current_context().params
    target = str(given.get("target") or "")
    is_config = is_configuration(target)
    return {
        "config": str(given.get("config") or (target if is_config else "")),
        "spool": str(given.get("path") or ("" if is_config else target)),
    }


def fail(message: str, code: int, *, verbose: bool) -> NoReturn:
    """Prints one line on stderr, after the traceback with ``verbose``, and exits with that code."""
    error = sys.exc_info()[1] if verbose else None
    log.complain("spanner-cdc", message, action="command_failed", error=error, exit_code=code)
    sys.exit(code)


def print_report(report: object, text: str, *, as_json: bool) -> None:
    """Prints a report on stdout: as JSON, or its text."""
    put(orjson.dumps(report, option=orjson.OPT_INDENT_2) if as_json else with_paths(text, **given_paths()))


def put(text: str | bytes) -> None:
    """Prints a text on stdout; nothing if its reader has gone.

    Raises:
        StdoutError: it cannot be written.
    """
    with printing():
        click.echo(text)


def _unless_omni(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """An option that is required unless the edition, which is parsed before, is omni."""
    return _unless_configured(context, option, value) if context.params.get("edition") == "cloud" else value


def _unless_configured(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """An option that is required unless a configuration, which is parsed before, names the database."""
    if value is None and context.params.get("config") is None:
        raise click.MissingParameter(ctx=context, param=option)
    return value


def database_options(command: Command) -> Command:
    """Adds the options that name a database and its server, passed by the names that the section ``source`` has."""
    database = click.option("--database", callback=_unless_configured, help="Name of the database.")
    return server_options(database(command))


def server_options(command: Command) -> Command:
    """Adds the options that name a server and an instance, passed by the names that the section ``source`` has."""

    @wraps(command)
    def wrapped(
        *,
        edition: str,
        tls: bool,
        tls_ca: str | None,
        tls_certificate: str | None,
        tls_key: str | None,
        token_file: str | None,
        **options: object,
    ) -> None:
        files = {"ca": tls_ca, "certificate": tls_certificate, "key": tls_key}
        given = {name: path for name, path in files.items() if path is not None}
        server = {"edition": edition, "tls": given if given or tls else None, "token_file": token_file}
        command(**server, **options)

    for option in (
        click.option("--token-file", metavar="FILE", help="Token of a user of Spanner Omni."),
        click.option("--tls-key", metavar="FILE", help="Private key of that certificate."),
        click.option("--tls-certificate", metavar="FILE", help="Client's certificate for a server of Spanner Omni."),
        click.option("--tls-ca", metavar="FILE", help="CA of a server of Spanner Omni."),
        click.option("--tls", is_flag=True, help="Encrypts the connection to Spanner Omni, as each --tls option does."),
        click.option(
            "--edition",
            type=click.Choice(["cloud", "omni"]),
            default="cloud",
            show_default=True,
            is_eager=True,
            help="The service or an emulator, or Spanner Omni at --endpoint.",
        ),
        click.option(
            "--instance", callback=_unless_omni, help="Name of the Spanner instance; of Spanner Omni default."
        ),
        click.option(
            "--project", callback=_unless_omni, help="Id of the Google Cloud project; of Spanner Omni default."
        ),
    ):
        wrapped = option(wrapped)
    return wrapped


async def until_stopped(
    stop: StopRequest, work: Coroutine[object, object, None], *, ends_with_stdin: bool = False, stopped: int = 0
) -> int:
    """Runs ``work`` until it ends or a signal stops it; returns the exit code.

    Args:
        stop: is requested by a signal.
        work: the command's.
        ends_with_stdin: whether the end of standard input requests it, too.
        stopped: the exit code after a stop that is not Ctrl-C.
    """
    with suppress(asyncio.CancelledError):  # a second signal cancels this task
        async with on_signals(stop), ended_with_stdin(stop, wanted=ends_with_stdin):
            await work
    code = INTERRUPTED if stop.interrupted else stopped if stop.requested else 0
    if stop.requested:  # a thread may be blocked in a write to a pipe that nobody reads, and must not keep the process
        asyncio.get_running_loop().call_later(_THREADS_TIMEOUT, os._exit, code)
    return code
