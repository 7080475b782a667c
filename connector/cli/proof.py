"""The commands that prove what was read and delivered: ``audit`` and ``verify``."""

import asyncio
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from connector.check.needs import NEEDS, sections_of
from connector.check.offline import refuse
from connector.cli.common import (
    INTERRUPTED,
    PRIORITY,
    common_options,
    print_report,
    until_stopped,
)
from connector.config.loading import Config, load
from connector.config.sinks import sink_type
from connector.core.timestamps import SECOND
from connector.daemon.repair import finish_earlier, keep_equality, repair
from connector.errors import ConfigurationError
from connector.proof.audit.command import AuditReport, audit, audit_request
from connector.proof.verify.command import VerifyOptions, verified_stream, verify
from connector.proof.verify.differing_keys import DifferingKeys
from connector.proof.verify.report import RepairReport
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
def audit_command(*, target: str, as_json: bool, **options: str) -> None:
    """Compares a spool with its change stream.

    Reads a past range of the change stream again and compares it with the spool at PATH, or the one of CONFIG,
    transaction by transaction. The exit code is 1 if anything is found. The daemon may run meanwhile.
    """
    request = audit_request(target, loaded=partial(load, sections=sections_of("audit")), **options)
    stop = StopRequest(drain_timeout=_AUDIT_DRAIN)
    planned: list[AuditReport] = []

    async def work() -> None:
        try:  # 0 would say that nothing is wrong
            await until_stopped(stop, audit(request, stop, planned=planned.append), stopped=INTERRUPTED)
        finally:  # before a thread that does not end is given up, with the process
            for report in planned:
                print_report(report.to_json(), report.to_text(), as_json=as_json)

    asyncio.run(work())
    if stop.requested:
        sys.exit(INTERRUPTED)
    sys.exit(1 if any(report.findings.total for report in planned) else 0)


@click.command("verify")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--at", metavar="TIMESTAMP", help="Timestamp of the rows; default: the last that is delivered.")
@click.option("--against", metavar="DATABASE", help="Another database: projects/P/instances/I/databases/D.")
@click.option("--tables", multiple=True, metavar="PATTERNS", help="Only these tables, separated by commas; repeatable.")
@click.option("--repair", is_flag=True, help="Deliver the rows that differ as they are in Spanner, with the sink.")
@click.option("--dry-run", is_flag=True, help="With --repair: count the rows to repair, and deliver none.")
@click.option("--show-keys", is_flag=True, help="Print the keys of rows that differ: they are values of your data.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@common_options
def verify_command(
    *,
    config: Path,
    at: str | None,
    against: str | None,
    tables: tuple[str, ...],
    show_keys: bool,
    as_json: bool,
    **repairing: bool,
) -> None:
    """Compares the destination of CONFIG, or another database, with Spanner, and repairs the destination.

    The rows are those as of one timestamp. The exit code is 1 if any row differs that is not repaired. The sink may
    run meanwhile.
    """
    names = tuple(filter(None, (name.strip() for one in tables for name in one.split(","))))
    options = VerifyOptions(at=at, against=against, tables=names)
    nameless = ["--tables: it names no table: leave it out to compare all of them"] if tables and not names else []
    if errors := [*nameless, *_senseless(options, **repairing)]:
        raise ConfigurationError(errors)
    delivers = repairing["repair"] and not repairing["dry_run"]
    loaded = load(config, sections_of("backfill" if delivers else "verify"))
    refused = _refusal(loaded) if repairing["repair"] else None
    if delivers and refused is not None:
        raise refused
    stop = StopRequest(drain_timeout=loaded.drain_timeout)
    if delivers:
        refuse(loaded, NEEDS["backfill"])
        asyncio.run(until_stopped(stop, finish_earlier(loaded, config, stop), stopped=INTERRUPTED))
        if stop.requested:
            sys.exit(INTERRUPTED)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that files on disk are removed
    with tempfile.TemporaryDirectory(prefix="spanner-cdc-verify-") as folder:
        keys = DifferingKeys(Path(folder)) if repairing["repair"] else None
        report = verify(loaded, asyncio.run(verified_stream(loaded)), options, keys)
        if keys is not None:
            report.repair = RepairReport(keys.counts, refused="" if refused is None else str(refused))
        try:
            if report.repair is not None and keys is not None and delivers and keys.tables:
                work = repair(loaded, config, stop, keys, report.repair)
                asyncio.run(until_stopped(stop, work, stopped=INTERRUPTED))
            if delivers and not stop.requested:
                keep_equality(loaded, report)
        finally:
            print_report(report.to_json(show_keys=show_keys), report.to_text(show_keys=show_keys), as_json=as_json)
    if stop.requested:
        sys.exit(INTERRUPTED)
    sys.exit(1 if report.left else 0)


def _refusal(config: Config) -> ConfigurationError | None:
    """The error of a repair that cannot be delivered rightly; None if it can."""
    if config.source.placements is not None:
        return ConfigurationError(
            ["--repair: it reads rows by their keys, in every placement: with source.placements, repair by a backfill"]
        )
    if config.source.skip_transaction_tags and sink_type(config.sink.type).waits_for_backfill:
        undoes = "with source.skip_transaction_tags it could undo changes of the destination's own users"
        how = "`spanner-cdc verify CONFIG --show-keys` names the rows that differ, to be written by hand"
        return ConfigurationError([f"--repair: {undoes}: {how}"])
    return None


def _senseless(options: VerifyOptions, *, repair: bool, dry_run: bool) -> Iterator[str]:
    """The errors of options that do not go together."""
    if dry_run and not repair:
        yield "--dry-run: it counts what --repair would deliver: give both"
    if repair and options.against is not None:
        yield "--repair: only the destination of the sink is repaired: leave --against out"
    if repair and options.at is not None:
        yield "--repair: rows are compared at the last timestamp that is delivered: leave --at out"
