"""The command ``spanner-cdc``: its options, and exit codes; every error is one line on stderr.

Exit codes: 0 done, 1 failed, 2 invalid usage or configuration, 3 data no longer retained, 130 interrupted.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise

import click

from connector import log
from connector.cli.common import INTERRUPTED, fail
from connector.process import collect_rarely

_MODULES = {
    "tail": "stream:tail_command",
    "serve": "stream:serve_command",
    "discover": "stream:discover_command",
    "read": "service:read_command",
    "run": "service:run_command",
    "backfill": "service:backfill_command",
    "check": "service:check_command",
    "audit": "proof:audit_command",
    "verify": "proof:verify_command",
    "self-test": "self_test:self_test_command",
    "spool": "spool:spool_command",
    "status": "states:status_command",
    "pause": "states:pause_command",
    "resume": "states:resume_command",
    "dead-letters": "dead_letters:dead_letters_group",
}
"""Where each command is: a module of this package, and its name there."""


class Commands(click.Group):
    """Loads the module of a command when it is run: what reads Spanner takes a second of processor time to load."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of the help."""
        del ctx
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        del ctx
        module, _, name = _MODULES.get(cmd_name, "").partition(":")
        if not module:
            return None
        command = getattr(import_module(f"connector.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="spanner-cdc-spark")
def cli() -> None:
    """Cloud Spanner change streams as transaction-complete, commit-ordered events."""


def _wants_json(arguments: Sequence[str]) -> bool:
    return "--log-format=json" in arguments or ("--log-format", "json") in pairwise(arguments)


def main() -> None:
    """The entry point of ``spanner-cdc``."""
    collect_rarely()
    try:
        sys.exit(cli(prog_name="spanner-cdc", standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.UsageError as error:
        log.configure(json=_wants_json(sys.argv[1:]), verbose=False)  # click has not come to the option
        where = error.ctx.command_path if error.ctx else "spanner-cdc"
        fail(f"{error.format_message()} Try {where} --help", error.exit_code, verbose=False)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
