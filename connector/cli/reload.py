"""The command ``reload``: the running daemon reads its configuration again, and applies what needs no restart."""

import time
from pathlib import Path

import click

from connector.check.needs import sections_of
from connector.cli.common import common_options, put
from connector.config.loading import load
from connector.config.reloading.fields import Outcome
from connector.core.health.states import ALIVE
from connector.core.timestamps import format_rfc3339
from connector.errors import ConfigurationError, NotReloadedError, SpoolError
from connector.spool.lifecycle import state_of
from connector.spool.reading import Spool
from connector.spool.requests.reload import (
    ReloadAnswer,
    ReloadRequest,
    reload_answer_of,
    reload_request_of,
    request_reload,
    withdraw_reload,
)

_POLL = 0.5

PATIENCE = 300.0
"""Seconds for which a daemon that runs may drain its reader, or finish a micro-batch, before it answers."""


@click.command("reload")
@click.argument("config", type=click.Path(path_type=Path))
@common_options
def reload_command(*, config: Path) -> None:
    """Applies an edited CONFIG to the daemon that runs with it, without a restart.

    The daemon reads its own file again, and this waits for its answer. It applies all that differs, or nothing: if an
    option needs a restart, or is refused for this spool, each such option is named, and the exit code is 5.
    """
    spool = Spool.at(load(config, sections_of("audit")).spool.path)
    report(_answered(spool))


def _answered(spool: Spool) -> ReloadAnswer:
    """Requests a reload, and waits for its answer; takes the request back if there is none.

    Raises:
        SpoolError: no daemon answers.
    """
    if not _is_alive(spool):
        raise _no_daemon(spool)
    before = reload_answer_of(spool)
    request = request_reload(spool, time.time_ns())
    try:
        return _awaited(spool, request, before)
    finally:
        withdraw_reload(spool, request)


def _awaited(spool: Spool, request: ReloadRequest, before: ReloadAnswer | None) -> ReloadAnswer:
    deadline = time.monotonic() + PATIENCE
    while True:
        waiting, answer = reload_request_of(spool), reload_answer_of(spool)  # in this order: the answer comes first
        is_of_later = waiting is None and answer != before
        if answer is not None and (answer.request == request.id or is_of_later):
            return answer
        if waiting is None:
            raise SpoolError("the request to reload was taken back meanwhile", hint="Run it again.")
        if not _is_alive(spool):
            raise _no_daemon(spool)
        if time.monotonic() > deadline:
            raise SpoolError(
                f"the daemon has not answered the request to reload within {PATIENCE:.0f} s",
                hint="`spanner-cdc status CONFIG` says what it does. One of an earlier version needs a restart.",
            )
        time.sleep(_POLL)


def _is_alive(spool: Spool) -> bool:
    return state_of(spool).as_seen(time.time_ns(), pause_requested=False).state in ALIVE


def _no_daemon(spool: Spool) -> SpoolError:
    return SpoolError(
        f"no daemon runs that holds the spool at {spool.path}: nothing is reloaded",
        hint="The next one that is started reads the configuration as it is then.",
    )


def report(answer: ReloadAnswer) -> None:
    """Prints an answer.

    Raises:
        ConfigurationError: the configuration is invalid.
        NotReloadedError: options need a restart, or are refused.
    """
    if answer.faults:
        raise ConfigurationError(answer.faults)
    if not answer.applied:
        raise _not_reloaded(answer)
    names = ", ".join(answer.options)
    since = f"; they hold for what was committed after {format_rfc3339(answer.after)}" if answer.after else ""
    put(f"{answer.config} is reloaded: {names}{since}" if names else f"nothing has changed in {answer.config}")
    for warning in answer.warnings:
        put(f"warning: {warning}")


def _not_reloaded(answer: ReloadAnswer) -> NotReloadedError:
    restarted = [name for name, outcome in answer.options.items() if outcome == Outcome.NEEDS_RESTART]
    refused = [name for name, outcome in answer.options.items() if outcome == Outcome.REFUSED]
    whys = [f"{', '.join(restarted)}: needs a restart"] if restarted else []
    whys += [f"{', '.join(refused)}: refused for this spool"] if refused else []
    hint = "Restart the service, which continues where it was."
    if refused:
        hint = "Set what is refused back, or take a new spool.path."
    return NotReloadedError(f"nothing is applied; {'; '.join(whys)}", hint=hint)
