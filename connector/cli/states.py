"""The commands over a stream's state: ``status``, ``pause`` and ``resume``, beside a running daemon or without one."""

import shlex
import sys
import time

import click

from connector.cli.common import common_options, given_paths, print_report, put
from connector.core.health.hints import with_paths
from connector.core.health.states import ALIVE, StreamState
from connector.daemon.states.report import kept_by, objects_report, spool_of, status_of, status_text
from connector.errors import SpoolError
from connector.spool.lifecycle import pause_of, request_pause, request_resume, state_of
from connector.spool.reading import Spool

_POLL = 0.5


@click.command("status")
@click.argument("target", metavar="CONFIG|PATH")
@click.option("--errors", "with_errors", is_flag=True, help="List what went wrong, the newest last.")
@click.option("--objects", "with_objects", is_flag=True, help="List each table: its backfill, its changes, its errors.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@common_options
def status_command(*, target: str, with_errors: bool, with_objects: bool, as_json: bool) -> None:
    """Says how replication is: its state, how far behind it is, why, and what to do.

    Reads the spool at PATH, or the one of CONFIG, whether a daemon runs or not. The exit code is 1 if replication is
    not healthy.
    """
    spool, most = spool_of(target)
    report = status_of(spool, most, config=given_paths()["config"])
    if with_objects:
        report["objects"] = objects_report(spool, kept_by(target))
    print_report(report, status_text(report, with_errors=with_errors), as_json=as_json)
    sys.exit(0 if report["health"]["healthy"] else 1)


@click.command("pause")
@click.argument("target", metavar="CONFIG|PATH")
@click.option("--wait", "waits", is_flag=True, help="Return once the stream is paused.")
@common_options
def pause_command(*, target: str, waits: bool) -> None:
    """Pauses the stream: what is complete is sealed and delivered, and nothing is read until it is resumed.

    The daemon stays; one that is started later reads nothing, either. Spanner's retention continues.
    """
    spool, _ = spool_of(target)
    request_pause(spool, time.time_ns())
    put(f"a pause is requested; `spanner-cdc resume {shlex.quote(target)}` takes it back")
    if waits:
        put(with_paths(_waited(spool), **given_paths()))


def _waited(spool: Spool) -> str:
    while True:
        record = state_of(spool).as_seen(time.time_ns(), pause_requested=True)
        if record.state in (StreamState.FAILED, StreamState.FAILED_PERMANENTLY):
            failed = f"the daemon has failed: {record.reason.rstrip('.')}"
            raise SpoolError(failed, hint="One that is started reads nothing until `spanner-cdc resume CONFIG`.")
        if record.state not in ALIVE or record.state is StreamState.PAUSED:
            return f"{record.state}: {record.reason}"
        if pause_of(spool) is None:
            raise SpoolError("the stream was resumed meanwhile")
        time.sleep(_POLL)


@click.command("resume")
@click.argument("target", metavar="CONFIG|PATH")
@common_options
def resume_command(*, target: str) -> None:
    """Resumes a stream that was paused: it continues from the last epoch."""
    spool, _ = spool_of(target)
    if not request_resume(spool):
        put("the stream was not paused")
        return
    runs = state_of(spool).as_seen(time.time_ns(), pause_requested=False).state in ALIVE
    put("resumed" if runs else "resumed; no daemon runs: start it with `spanner-cdc run` or `read`")
