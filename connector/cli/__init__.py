"""The command ``spanner-cdc``: its options, and exit codes; every error is one line on stderr.

Exit codes: 0 done, 1 failed (a restart may succeed), 2 invalid usage or configuration, 3 data no longer retained,
4 failed permanently (every restart meets the same error), 5 not reloaded (options need a restart, or are refused),
130 interrupted.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise

import click

from connector import log
from connector.cli.common import INTERRUPTED, SuggestingGroup, fail
from connector.cli.examples import epilog_of
from connector.errors import ConfigurationError, StdoutError
from connector.extras import extras_named
from connector.process import collect_rarely
from connector.streams import standard_streams, writing_to_stdout

_COMMANDS = {
    "tail": ("stream:tail_command", "Prints events as JSON lines on stdout, in commit order."),
    "serve": ("stream:serve_command", "Gives OpenCDC records to a pipeline of Conduit, as its plugin."),
    "discover": ("stream:discover_command", "Lists the change streams of a database."),
    "read": ("service:read_command", "Runs the daemon: reads a change stream into its spool."),
    "run": ("service:run_command", "Runs the daemon and the Spark sink as one service."),
    "backfill": ("service:backfill_command", "Delivers every row of the tables as of one timestamp."),
    "check": ("service:check_command", "Checks a configuration and all that it points at."),
    "audit": ("proof:audit_command", "Compares a spool with its change stream."),
    "verify": ("proof:verify_command", "Compares a destination with Spanner."),
    "self-test": ("self_test:self_test_command", "Tries everything on a real Spanner, and deletes what it made."),
    "cuts": ("cuts:cuts_command", "Lists the published cuts of a destination."),
    "spool": ("spool:spool_command", "Describes a spool: its epochs, gaps and consumers."),
    "status": ("states:status_command", "Shows how replication is, why, and what to do."),
    "pause": ("states:pause_command", "Pauses a stream after what is complete has been delivered."),
    "resume": ("states:resume_command", "Resumes a paused stream from its last epoch."),
    "reload": ("reload:reload_command", "Applies an edited configuration to the running daemon."),
    "dead-letters": ("dead_letters:dead_letters_group", "Lists and replays events that the destination rejected."),
}
"""The module of this package and the name there of each command, and its line in the help of ``spanner-cdc``."""


class Commands(SuggestingGroup):
    """Loads the module of a command when it is run: what reads Spanner takes a second of processor time to load.

    The list of commands in the help is made of their lines here, so that the help loads none of them.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of the help."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None.

        Raises:
            ConfigurationError: it needs an extra that is not installed.
        """
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        with extras_named(f"spanner-cdc {cmd_name}"):
            command = getattr(import_module(f"connector.cli.{module}"), name)
        assert isinstance(command, click.Command)
        command.epilog = epilog_of(cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands; click's own would load every command for its line."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="spanner-cdc-spark")
def cli() -> None:
    """Cloud Spanner change streams as transaction-complete, commit-ordered events."""


def _wants_json(arguments: Sequence[str]) -> bool:
    return "--log-format=json" in arguments or ("--log-format", "json") in pairwise(arguments)


def main() -> None:
    """The entry point of ``spanner-cdc``."""
    collect_rarely()
    with standard_streams(), _exit_codes():
        with writing_to_stdout():
            code = cli(prog_name="spanner-cdc", standalone_mode=False)
        sys.exit(code)


@contextmanager
def _exit_codes() -> Iterator[None]:
    try:
        yield
    except SystemExit:
        if "PacifyFlushWrapper" in type(sys.stdout).__name__:  # click ends with 1 where its help is not read
            sys.exit(0)
        raise
    except StdoutError as error:
        fail(str(error), error.exit_code, verbose=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.UsageError as error:
        log.configure(json=_wants_json(sys.argv[1:]), verbose=False)  # click has not come to the option
        where = error.ctx.command_path if error.ctx else "spanner-cdc"
        fail(f"{error.format_message()} Try {where} --help", error.exit_code, verbose=False)
    except ConfigurationError as error:  # a command that cannot be imported
        log.configure(json=_wants_json(sys.argv[1:]), verbose=False)
        fail(str(error), error.exit_code, verbose=False)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
