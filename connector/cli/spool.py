"""The command ``spool``."""

import time

import click

from connector.cli import spool_reports as reports
from connector.cli.common import common_options, print_report
from connector.core.timestamps import format_rfc3339, parse
from connector.daemon.states.report import spool_of
from connector.errors import ConfigurationError
from connector.spool import gaps
from connector.spool.backfill.forgetting import forget_everywhere
from connector.spool.gaps import GapRecord
from connector.spool.reading import Spool


@click.command("spool")
@click.argument("path", metavar="PATH|CONFIG")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--forget", "forgotten", metavar="CONSUMER", help="Drop a consumer: no epoch is kept for it any more.")
@click.option("--restart-at", metavar="TIMESTAMP", help="Record a gap up to this RFC 3339 timestamp.")
@common_options
def spool_command(*, path: str, as_json: bool, forgotten: str | None, restart_at: str | None) -> None:
    """Describes the spool at PATH, or the one of CONFIG.

    Prints the ranges, rows and bytes of its epochs, its gaps, and its consumers and their lag.
    """
    spool, _ = spool_of(path)
    if forgotten is not None and restart_at is not None:
        raise ConfigurationError(["--forget and --restart-at exclude each other: run one after the other"])
    if restart_at is not None:
        gap = _restarted(spool, restart_at)
        print_report({"gap": gap.model_dump(mode="json")}, _said(gap), as_json=as_json)
        return
    if forgotten is not None:
        forget_everywhere(spool, forgotten, now=time.time_ns())
        print_report({"forgotten": forgotten}, f"forgot consumer {forgotten}", as_json=as_json)
        return
    report = reports.spool_report(spool)
    print_report(report, reports.spool_text(report), as_json=as_json)


def _restarted(spool: Spool, timestamp: str) -> GapRecord:
    try:
        restart = parse(timestamp)
    except (ValueError, IndexError):
        raise ConfigurationError(
            [f"--restart-at: {timestamp!r} is not a valid RFC 3339 timestamp such as 2026-01-31T12:00:00Z"]
        ) from None
    return gaps.restart_at(spool, restart, now=time.time_ns())


def _said(gap: GapRecord) -> str:
    return (
        f"epoch {gap.epoch} is a gap: what was committed after {format_rfc3339(gap.watermark_low)} and before"
        f" {format_rfc3339(gap.watermark_high + 1)} is not in this spool; the daemon continues from there."
        " `spanner-cdc backfill CONFIG` reads the tables again, as of a timestamp after the gap; rows that were deleted"
        " within it stay"
    )
