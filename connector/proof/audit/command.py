"""``spanner-cdc audit``: reads a past range of the change stream again, and compares it with the spool.

It is a second reader: bounded queries, whose end is in the past, in one process and with low priority. It takes no
lock, writes nothing, and registers no consumer; the daemon of the spool may run meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from connector.config.loading import Config, load, validated
from connector.config.sections import SourceConfig
from connector.config.values import parse_timestamp
from connector.core.late_records import LateReport
from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from connector.errors import ConfigurationError, DataLostError, SpoolError
from connector.log import Log, terminal
from connector.proof.audit.comparing_sink import ComparingSink
from connector.proof.audit.findings import AuditFindings, Kind
from connector.proof.audit.spans import CommitSpan, parse_share, sampled, without
from connector.proof.audit.spool_rows import AuditedSpool
from connector.reader.change_stream import OpenStream, opened
from connector.reader.starting import first_start
from connector.reader.stopping import StopRequest
from connector.spool.gaps import GapRecord, gaps
from connector.spool.late_store import late_report
from connector.spool.reading import Spool, SpoolHeader
from connector.targets import is_configuration
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.progress import reporting
from connector.threads import in_thread

RETENTION_MARGIN = 10 * MINUTE
"""An audit omits what is this close to the end of Spanner's retention: it might be gone before it is read."""

_SEAL_INTERVAL = SECOND // 10

_FILTERS = (
    "if the spool was written with source.tables or source.skip_transaction_tags, audit its configuration file:"
    " a spool does not know its filters"
)

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The input of an audit: a spool, its change stream, and the range and share of commit time as given."""

    source: SourceConfig
    spool: Spool
    header: SpoolHeader
    start: str | None = None
    end: str | None = None
    sample: str | None = None
    knows_filters: bool = True
    """True if a configuration was given; a spool does not know the filters that it was written with."""


@dataclass(slots=True)
class AuditReport:
    """The result of an audit, filled while it runs.

    Attributes:
        request: what was asked for.
        span: the range that was audited, without its gaps.
        spans: the spans of it that were read.
        reached: everything up to here was compared; the end of ``span`` unless the audit ended early.
        notes: why the range is less than what was asked for.
        gaps: the spool's gaps in the range.
        late: the spool's late records, of any time.
        epochs: epochs of the spool that were read.
        pruned: epochs that were pruned before they could be read.
        incomplete: transactions of which Spanner returned fewer records than they state.
    """

    request: AuditRequest
    span: CommitSpan
    spans: list[CommitSpan]
    findings: AuditFindings
    notes: list[str]
    gaps: list[GapRecord]
    late: LateReport
    epochs: int = 0
    pruned: int = 0
    incomplete: int = 0
    reached: int | None = None

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        found, late = self.findings, self.late
        return {
            "spool": self.request.spool.path,
            "source": self.request.header.source.model_dump(),
            "from": format_rfc3339(self.span.start),
            "to": format_rfc3339(self.span.end),
            "sample": self.request.sample,
            "read_s": round(sum(one.end - one.start + 1 for one in self.spans) / SECOND, 3),
            "compared_to": None if self.reached is None else format_rfc3339(self.reached),
            "notes": self.notes,
            "epochs": self.epochs,
            "pruned_epochs": self.pruned,
            "transactions": found.transactions,
            "mods": found.mods,
            "incomplete_in_spanner": self.incomplete,
            "gaps": [gap.model_dump(mode="json") for gap in self.gaps],
            "late_records": late.count,
            "findings": found.total,
            "findings_by_kind": {kind.value: count for kind, count in sorted(found.counts.items())},
            "first_findings": [one.to_json() for one in found.first],
        }

    def to_text(self) -> str:
        """Findings, what was left out, and a summary as the last line."""
        found = self.findings
        lines = [str(one) for one in found.first]
        if found.total > len(found.first):
            lines.append(f"and {found.total - len(found.first)} more findings")
        lines += [f"note: {note}" for note in self.notes]
        lines += [
            f"gap: what was committed after {format_rfc3339(gap.watermark_low)} up to"
            f" {format_rfc3339(gap.watermark_high)} is not in the spool: {gap.reason}"
            for gap in self.gaps
        ]
        if found.counts[Kind.MISSING] and not self.request.knows_filters:
            lines.append(f"note: {_FILTERS}")
        if self.late.count:
            lines.append(f"late: {self.late.count} late records are dead letters of the spool; its epochs lack them")
        if self.pruned:
            lines.append(f"note: {self.pruned} epochs were pruned before they could be compared")
        if self.incomplete:
            lines.append(f"note: Spanner returned {self.incomplete} transactions without all of their records")
        kinds = ", ".join(f"{count} {kind.value}" for kind, count in sorted(found.counts.items()))
        share = f", {len(self.spans)} spans drawn as {self.request.sample}" if self.request.sample else ""
        compared = f"{found.transactions} transactions, {found.mods} mods in {self.epochs} epochs"
        if self.reached is None:
            return "\n".join([*lines, "nothing was compared"])
        lines.append(
            f"audited {format_rfc3339(self.span.start)} to {format_rfc3339(self.reached)}{share}: {compared};"
            f" {f'{found.total} findings ({kinds})' if found.total else 'no findings'}"
        )
        return "\n".join(lines)


def audit_request(
    target: str,
    *,
    start: str | None,
    end: str | None,
    sample: str | None,
    rpc_priority: str,
    endpoint: str | None = None,
    database_role: str | None = None,
    loaded: Callable[[str], Config] = load,
) -> AuditRequest:
    """The request that the options of the command make.

    Args:
        target: a configuration file, or the path of a spool.
        start: the first commit timestamp, or None for the first that the spool keeps.
        end: the last one, or None for the spool's watermark.
        sample: a share such as ``10%``, or None for everything.
        rpc_priority: low, medium or high.
        endpoint: a regional or private endpoint; of a configuration file its own, if this is None.
        database_role: likewise.
        loaded: reads a configuration file.

    Raises:
        ConfigurationError: an option or the configuration is invalid; all are named.
        SpoolError: there is no such spool.
    """
    _check_options(start, end, sample)
    given = {"endpoint": endpoint, "database_role": database_role}
    knows = is_configuration(target)
    config = loaded(target) if knows else None
    spool = Spool.at(target if config is None else config.spool.path)
    header = _header(spool)
    if config is not None:
        spool.check_source(config.source.name, config.source.rules_fingerprint)
    else:
        if header.columns is not None:
            raise ConfigurationError(
                [f"the spool at {target} is written with source.columns: audit its configuration file, not its path"]
            )
        config = validated({"source": header.source.model_dump()})
    more = {name: value for name, value in given.items() if value is not None}
    quiet: dict[str, object] = {"rpc_priority": rpc_priority, "workers": 1, "late_records": "stop"}
    if not knows:
        quiet["placements"] = header.placements or None
    return AuditRequest(config.source.model_copy(update={**quiet, **more}), spool, header, start, end, sample, knows)


def _check_options(start: str | None, end: str | None, sample: str | None) -> None:
    errors = []
    checks = (("--from", start, parse_timestamp), ("--to", end, parse_timestamp), ("--sample", sample, parse_share))
    for option, text, parse in checks:
        try:
            if text is not None:
                parse(text)
        except ValueError as error:
            errors.append(f"{option}: {error}")
    if errors:
        raise ConfigurationError(errors)


def _header(spool: Spool) -> SpoolHeader:
    try:
        return spool.header()
    except FileNotFoundError:
        raise SpoolError(
            f"there is no spool at {spool.path}", hint="Give the path of a spool, or a configuration file."
        ) from None


async def audit(request: AuditRequest, stop: StopRequest, *, planned: Callable[[AuditReport], None]) -> None:
    """Compares the spool with its change stream, until the range's end or until ``stop``.

    Args:
        request: what to audit.
        stop: ends the audit; the report then covers what was compared.
        planned: receives the report before anything is read; it is filled meanwhile, also if an error follows.

    Raises:
        ConfigurationError: the range is empty, or the change stream does not exist.
        SpoolMismatchError: the configuration names other placements than the spool is of.
        DataLostError: Spanner retains nothing of the range, or no longer retains what is to be read next.
        SpannerCdcError: one clear line.
    """
    findings, metrics = AuditFindings(), ReaderMetrics()
    async with opened(request.source, started=True) as stream:
        request.header.check_placements(stream.placements, request.spool.path)
        spool = await in_thread(partial(AuditedSpool, request.spool, request.header, stream.filter, findings))
        report = await _planned(request, stream, spool, findings)
        planned(report)
        _log.info(
            "auditing",
            spool=request.spool.path,
            change_stream=stream.stream.name,
            start=format_rfc3339(report.span.start),
            end=format_rfc3339(report.span.end),
            spans=len(report.spans),
        )
        async with reporting(metrics, terminal(), end=report.span.end):
            for span in report.spans:
                if not stop.requested:
                    await _compare(span, report, stream, spool, metrics, stop)
        if not stop.requested:
            report.reached = report.span.end


async def _compare(
    span: CommitSpan,
    report: AuditReport,
    stream: OpenStream,
    spool: AuditedSpool,
    metrics: ReaderMetrics,
    stop: StopRequest,
) -> None:
    """Reads and compares a span."""
    sink = ComparingSink(stream.source, tuple(stream.stream.tables), stream.filter, spool.rows(span), report.findings)
    what = await stream.range_from(span.start, span.end, was_read=True)
    async with (
        stream.scheduler(what, sink, seal_interval=_SEAL_INTERVAL, metrics=metrics) as scheduler,
        stop.draining(scheduler),
    ):
        try:
            await scheduler.run()
        finally:
            report.reached = report.reached if sink.reached is None else sink.reached
            report.epochs, report.pruned = spool.epochs, spool.pruned
            report.incomplete = metrics.incomplete_transactions


async def _planned(
    request: AuditRequest, stream: OpenStream, spool: AuditedSpool, findings: AuditFindings
) -> AuditReport:
    """The range and the spans that are audited, in a report that is still empty."""
    span, notes = _requested(request, stream, spool)
    span = await _retained(span, stream, notes)
    known, late = await in_thread(partial(_gaps_and_late, request.spool))
    inside = [gap for gap in known if gap.watermark_low < span.end and gap.watermark_high >= span.start]
    spans = [span]
    for gap in inside:
        spans = list(without(spans, gap.watermark_low, gap.watermark_high))
    if request.sample is not None:
        spans = sampled(spans, parse_share(request.sample), str(request.header.source))
    return AuditReport(request, span, spans, findings, notes, inside, late)


def _gaps_and_late(spool: Spool) -> tuple[tuple[GapRecord, ...], LateReport]:
    try:
        newest = spool.manifest(spool.latest())
    except (SpoolError, FileNotFoundError):  # a finding has said so
        newest = None
    return gaps(spool, newest), late_report(spool)


def _requested(request: AuditRequest, stream: OpenStream, spool: AuditedSpool) -> tuple[CommitSpan, list[str]]:
    """The range that was asked for, clipped to what the spool keeps; notes say so."""
    start = spool.low + 1 if request.start is None else stream.resolve(request.start)
    end = spool.high if request.end is None else stream.resolve(request.end)
    if end < start:
        if request.start is not None and start > spool.high:
            reach = f"the spool's newest epoch ends at {format_rfc3339(spool.high)}"
            raise ConfigurationError([f"--from: {format_rfc3339(start)} has not been reached: {reach}"])
        raise ConfigurationError([f"--to: {format_rfc3339(end)} is before the start, {format_rfc3339(start)}"])
    notes = []
    if start <= spool.low:
        start = spool.low + 1
        notes.append(f"the spool keeps no epochs of what was committed before {format_rfc3339(start)}")
    if end > spool.high:
        end = spool.high
        notes.append(f"the spool's newest epoch ends at {format_rfc3339(end)}")
    if end < start:
        raise ConfigurationError([f"--from, --to: the spool keeps no epochs of that range: {'; '.join(notes)}"])
    return CommitSpan(start, end), notes


async def _retained(span: CommitSpan, stream: OpenStream, notes: list[str]) -> CommitSpan:
    """The part of a range that Spanner retains for long enough to read it; a note says so if it is less.

    Spanner is asked: its retention period may have been changed since, or is not known.

    Raises:
        DataLostError: it retains nothing of it.
    """
    try:
        await stream.probe(span.start - RETENTION_MARGIN)
    except DataLostError as error:
        first = error.earliest or await first_start(stream, span.start - RETENTION_MARGIN, stream.now)
    else:
        return span
    expires = stream.now - stream.retention.period
    if first > span.start:
        start = first + RETENTION_MARGIN
    elif first > expires + RETENTION_MARGIN:  # the stream has not existed for longer: nothing is about to leave it
        start = span.start
    else:
        start = max(span.start, expires + RETENTION_MARGIN)
    if start > span.end:
        raise DataLostError(
            f"nothing of {format_rfc3339(span.start)} to {format_rfc3339(span.end)} can be read again: change stream"
            f" {stream.stream.name} can be read from {format_rfc3339(first)} on",
            hint=f"Its retention period is {stream.stream.retention}: audit more often than that, or a later range"
            " with --from.",
            earliest=first,
        )
    if start > span.start:
        notes.append(
            f"what was committed before {format_rfc3339(start)} is not audited: change stream {stream.stream.name}"
            f" can be read from {format_rfc3339(first)} on; its retention period is {stream.stream.retention}"
        )
    return CommitSpan(start, span.end)
