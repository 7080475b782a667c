"""The command ``spanner-cdc``: its options, and exit codes; every error is one line on stderr.

Exit codes: 0 done, 1 failed, 2 invalid usage or configuration, 3 data no longer retained, 130 interrupted.
"""

import sys
from collections.abc import Sequence
from itertools import pairwise

import click

from connector import log
from connector.cli.common import INTERRUPTED, fail
from connector.cli.proof import audit_command, verify_command
from connector.cli.self_test import self_test_command
from connector.cli.service import backfill_command, check_command, read_command, run_command
from connector.cli.spool import dead_letters_group, spool_command
from connector.cli.states import pause_command, resume_command, status_command
from connector.cli.stream import discover_command, serve_command, tail_command
from connector.process import collect_rarely


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="spanner-cdc-spark")
def cli() -> None:
    """Cloud Spanner change streams as transaction-complete, commit-ordered events."""


for _command in (
    tail_command,
    serve_command,
    discover_command,
    read_command,
    run_command,
    backfill_command,
    check_command,
    audit_command,
    verify_command,
    self_test_command,
    spool_command,
    status_command,
    pause_command,
    resume_command,
    dead_letters_group,
):
    cli.add_command(_command)


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
