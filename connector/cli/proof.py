"""The commands that prove what was read and delivered: ``audit`` and ``verify``."""

import asyncio
import signal
import sys
from pathlib import Path

import click

from connector.cli.common import (
    INTERRUPTED,
    PRIORITY,
    Common,
    common_options,
    print_report,
    until_stopped,
)
from connector.config.loading import load
from connector.core.timestamps import SECOND
from connector.proof.audit.command import AuditReport, audit, audit_request
from connector.proof.verify.command import verified_stream, verify
from connector.reader.stopping import StopRequest

_AUDIT_DRAIN = 30 * SECOND
"""Nanoseconds that an audit has to end after a stop."""


@click.command("audit")
@click.argument("target", metavar="PATH|CONFIG")
@click.option("--from", "start", metavar="TIMESTAMP", help="First commit timestamp; default: the first that is kept.")
@click.option("--to", "end", metavar="TIMESTAMP", help="Last commit timestamp; default: the spool's watermark.")
@click.option("--sample", metavar="PERCENT", help="Share of the minutes to read, such as 10%; drawn by hash.")
@click.option("--rpc-priority", type=PRIORITY, default="low", show_default=True, help="Priority of the queries.")
@click.option("--database-role", help="Database role, for fine-grained access control.")
@click.option("--endpoint", help="Regional or private endpoint of Spanner.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@common_options
def audit_command(*, common: Common, target: str, as_json: bool, **options: str) -> None:
    """Compares a spool with its change stream.

    Reads a past range of the change stream again and compares it with the spool at PATH, or the one of CONFIG,
    transaction by transaction. The exit code is 1 if anything is found. The daemon may run meanwhile.
    """
    request = audit_request(target, **options)
    stop = StopRequest(drain_timeout=_AUDIT_DRAIN)
    planned: list[AuditReport] = []
    work = audit(request, stop, planned=planned.append)
    try:
        asyncio.run(until_stopped(stop, work))
    finally:
        for report in planned:
            print_report(report.to_json(), report.to_text(), as_json=as_json)
    if stop.requested:  # 0 would say that nothing is wrong
        sys.exit(INTERRUPTED)
    sys.exit(1 if any(report.findings.total for report in planned) else 0)


@click.command("verify")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--at", metavar="TIMESTAMP", help="Timestamp of the rows; default: the last that is delivered.")
@click.option("--against", metavar="DATABASE", help="Another database: projects/P/instances/I/databases/D.")
@click.option("--show-keys", is_flag=True, help="Print the keys of rows that differ: they are values of your data.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@common_options
def verify_command(*, common: Common, config: Path, show_keys: bool, as_json: bool, **options: str | None) -> None:
    """Compares the destination of CONFIG, or another database, with Spanner.

    The rows are those as of one timestamp. The exit code is 1 if any row differs.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that files on disk are removed
    loaded = load(config)
    stream = asyncio.run(verified_stream(loaded))
    report = verify(loaded, stream, **options)
    print_report(report.to_json(show_keys=show_keys), report.to_text(show_keys=show_keys), as_json=as_json)
    sys.exit(1 if report.total else 0)
