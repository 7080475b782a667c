"""``spanner-cdc status``: how replication is, in one screen, read from the spool alone: a daemon runs, or does not."""

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from connector.check.needs import sections_of
from connector.config.loading import load
from connector.core.filters import RecordFilter
from connector.core.health.alarms import ConsumerLag, Facts, KeptLess, alarms, retention_used, summary
from connector.core.health.hints import with_paths
from connector.core.health.retries import merged
from connector.core.health.states import RetentionPeriod, StateRecord
from connector.core.timestamps import SECOND, format_lag, format_rfc3339
from connector.daemon.backfill_report import Report, described, incompleteness, lacking, rejected
from connector.errors import SpoolError
from connector.spool.backfill.records import backfills, unfinished_names
from connector.spool.consumers import consumers, is_stray
from connector.spool.late_store import late_report
from connector.spool.lifecycle import ErrorEvent, errors_of, late_stops, pause_of, state_of
from connector.spool.reading import Spool, while_pruned
from connector.spool.retention.floor import floor_of
from connector.spool.second_daemon import refused_daemon
from connector.spool.sink_report import NOTHING, SinkReport, failed_sinks, reports_of, restarts, stopped_by
from connector.spool.summaries import EpochSummary, held_bytes
from connector.targets import is_configuration
from connector.telemetry.objects import line_of, objects_of
from connector.telemetry.retrying import retries_of_others

_SHOWN_ERRORS = 20


def spool_of(target: str) -> tuple[Spool, int]:
    """The spool of a configuration file, or at a path, and its most bytes; 0 where only the path is given.

    Raises:
        ConfigurationError: the configuration is invalid, or there is no such file.
        SpoolError: there is no such spool.
        SpoolMismatchError: it holds another change stream than the configuration's.
    """
    if is_configuration(target):
        spool, most = configured_spool(target)
    else:
        spool, most = Spool.at(target), 0
    if not spool.storage.exists("spool.json") and not spool.storage.exists("state.json"):
        raise SpoolError(f"there is no spool at {spool.path}", hint="`spanner-cdc read CONFIG` creates one.")
    return spool, most


def configured_spool(path: str | Path) -> tuple[Spool, int]:
    """The spool of a configuration file, which need not exist, and its most bytes.

    Raises:
        ConfigurationError: the configuration is invalid, or there is no such file.
        SpoolError: the spool cannot be read.
        SpoolMismatchError: it holds another change stream.
    """
    config = load(path, sections_of("audit"))
    spool = Spool.at(config.spool.path)
    with suppress(FileNotFoundError):
        spool.header().check_source(config.source.name, spool.path)
    return spool, config.spool.max_bytes


def status_of(spool: Spool, max_bytes: int, now: int | None = None, *, config: str = "") -> Report:
    """The report of a stream's status. A field that is unknown is absent.

    Args:
        spool: its spool.
        max_bytes: of the spool; 0 if it is not known.
        now: nanoseconds since 1970; None for the clock's.
        config: the configuration file that hints name; empty if only the spool is known.

    Raises:
        SpoolError: the spool cannot be read.
    """
    named = functools.partial(with_paths, config=config, spool=spool.path)
    facts = facts_of(spool, max_bytes, time.time_ns() if now is None else now)
    reports = reports_of(spool)
    raised = alarms(facts)
    is_well = facts.state.is_well and not any(alarm.severity == "ERROR" for alarm in raised)
    report: Report = {
        "spool": {"path": spool.path, "bytes": facts.spool_bytes},
        "state": {name: named(text) for name, text in _state(facts.state).items()},
        "health": {
            "healthy": is_well,
            "summary": named(summary(facts, raised)),
            "alarms": [{**asdict(alarm), "hint": named(alarm.hint)} for alarm in raised],
        },
        "consumers": [
            {
                "name": one.name,
                **_lag(one, facts.now),
                **_of_sink(reports.get(one.name, NOTHING)),
                **incompleteness(spool, one.name),
            }
            for one in facts.consumers
        ],
        "errors": [event.model_dump(mode="json") for event in errors_of(spool)],
    }
    if facts.watermark:
        report["watermark"] = {
            "sealed": format_rfc3339(facts.spooled),
            "sealed_lag_seconds": round(facts.lag / SECOND, 1),
        }
    used = retention_used(facts)
    if used is not None:
        left = facts.watermark + facts.state.retention.period - facts.now
        report["retention"] = {
            "seconds": facts.state.retention.period // SECOND,
            "is_default": facts.state.retention.is_default,
            "runway_seconds": max(left // SECOND, 0),
            "used": round(used, 4),
        }
    return report


def objects_report(
    spool: Spool, keeps: Callable[[str], bool] = bool, now: int | None = None
) -> list[dict[str, object]]:
    """The state of each table, as :func:`connector.telemetry.objects.objects_of` describes it.

    Args:
        spool: the stream's.
        keeps: whether the configuration keeps a table that the stream watches.
        now: nanoseconds since 1970; None for the clock's.

    Raises:
        SpoolError: the spool cannot be read.
    """
    tables: set[str] = set()
    if spool.storage.exists("spool.json"):
        tables.update(spool.header().schema_keys)
    tables.update(while_pruned(spool, lambda: _tables_of_newest(spool)))
    stopped = stopped_by(reports_of(spool).values())
    record = _state_of(spool, time.time_ns() if now is None else now)
    filled = [described(one) for one in backfills(spool)]
    kept, errors = filter(keeps, tables), errors_of(spool)
    return objects_of(kept, filled, stopped, errors, record.state, is_complete=record.is_complete)


def kept_by(target: str) -> Callable[[str], bool]:
    """The tables that a configuration file keeps; with a spool's path alone all, because that is not known.

    Raises:
        ConfigurationError: the configuration is invalid, or there is no such file.
    """
    if not is_configuration(target):
        return bool
    chosen = load(target, sections_of("audit")).source.tables
    return RecordFilter(chosen.include, chosen.exclude).keeps


def _tables_of_newest(spool: Spool) -> dict[str, str]:
    latest = spool.latest()
    return next(spool.manifests(latest, latest)).schema_keys if latest else {}


def _lag(one: ConsumerLag, now: int) -> Report:
    """The lag of a consumer; it is not known of one that is done with an epoch of another copy."""
    if one.is_stray:
        return {"of_another_copy": True}
    return {"epochs_behind": one.epochs_behind, "lag_seconds": round(max(now - one.watermark, 0) / SECOND, 1)}


def _of_sink(report: SinkReport) -> Report:
    """The newest published cut of a sink and its maintenance, as fields of its consumer."""
    found: Report = {}
    if report.cut is not None:
        found |= {"complete_up_to": format_rfc3339(report.cut.timestamp), "incomplete_tables": report.cut.incomplete}
    if report.maintained_at:
        found["maintained_at"] = format_rfc3339(report.maintained_at)
    if report.unmaintained:
        found["unmaintained_tables"] = report.unmaintained
    return found


def facts_of(spool: Spool, max_bytes: int, now: int) -> Facts:
    """The facts from which the alarms of a spool are derived.

    Raises:
        SpoolError: the spool cannot be read.
    """
    return while_pruned(spool, lambda: _facts_of(spool, max_bytes, now))


def _facts_of(spool: Spool, max_bytes: int, now: int) -> Facts:
    state = _state_of(spool, now)
    known = consumers(spool)  # before the newest epoch, which one may be done with as soon as it is sealed
    floor, latest = spool.floor(), spool.latest()
    epochs = list(spool.summaries(floor, latest)) if latest else []
    watermark = epochs[-1].watermark_high if epochs else _start(spool)
    complete = state.complete_at(now)
    spooled = max(watermark, complete)
    identities = {one.epoch: one.identity for one in epochs}
    by_name = reports_of(spool)
    reports = [by_name.get(consumer.consumer, NOTHING) for consumer in known]
    filled = backfills(spool)
    refused = sum(report.refused for report in reports) + sum(rejected(one).refused for one in filled)
    return Facts(
        now,
        state,
        watermark,
        [
            ConsumerLag(
                one.consumer,
                _delivered(epochs, one.epoch, spooled),
                max(latest - one.epoch, 0),
                one.updated,
                is_stray(one, latest, identities.get(one.epoch, "")),
            )
            for one in known
        ],
        held_bytes(epochs),
        max_bytes,
        stopped_by(reports),
        max(refused - sum(report.replayed for report in reports), 0),
        holder=state.holder,
        retries=merged([*state.retries, *retries_of_others(spool, now)]),
        sink_restarts=restarts(by_name),
        failed_sinks=failed_sinks(by_name),
        complete=complete,
        kept_less=_kept_less(spool, epochs),
        late=late_stops(errors_of(spool)),
        refused=refused_daemon(spool),
        missing=late_report(spool),
        unfinished=unfinished_names(filled),
    )


def _state_of(spool: Spool, now: int) -> StateRecord:
    return state_of(spool).as_seen(now, pause_requested=pause_of(spool) is not None)


def _kept_less(spool: Spool, epochs: Sequence[EpochSummary]) -> KeptLess | None:
    short = floor_of(spool).short
    return short.less(epochs[-1].watermark_high - epochs[0].watermark_low) if short and epochs else None


def _delivered(epochs: Sequence[EpochSummary], epoch: int, spooled: int) -> int:
    """The timestamp up to which a consumer that has passed an epoch has everything."""
    later = (one.first_commit_timestamp for one in epochs if one.epoch > epoch)
    return min((first - 1 for first in later if first is not None), default=spooled)


def _start(spool: Spool) -> int:
    """The timestamp after which reading begins; 0 before that is decided."""
    try:
        return spool.header().start
    except FileNotFoundError:
        return 0


def _state(record: StateRecord) -> dict[str, str]:
    found = {"name": str(record.state)}
    if record.since:
        found["since"] = format_rfc3339(record.since)
    return found | {name: text for name, text in (("reason", record.reason), ("hint", record.hint)) if text}


def _for_people(seconds: float) -> str:
    return format_lag(round(seconds * SECOND))


def status_text(report: Report, *, with_errors: bool) -> str:
    """The report for people; with the newest errors, or with how many there are."""
    state, health = report["state"], report["health"]
    since = f" since {state['since']}" if "since" in state else ""
    lines = [f"{state['name']}{since}: {health['summary']}"]
    if state.get("reason") and state["reason"] != health["summary"]:
        lines.append(f"  why: {state['reason']}")
    if state.get("hint"):
        lines.append(f"  what to do: {state['hint']}")
    if watermark := report.get("watermark"):
        lines.append(f"  sealed up to {watermark['sealed']}, {_for_people(watermark['sealed_lag_seconds'])} behind")
    if retention := report.get("retention"):
        whose = RetentionPeriod(is_default=retention["is_default"])
        left = _for_people(retention["runway_seconds"])
        lines.append(f"  {retention['used']:.1%} of {whose} is used; data would be lost in {left}")
    lines += [
        f"  consumer {consumer['name']}: {_behind(consumer)}{_completeness(consumer)}"
        f"{lacking(consumer)}{_maintenance(consumer)}"
        for consumer in report["consumers"]
    ]
    lines += [
        f"  {alarm['severity']} {alarm['name']}: {alarm['message']}. {alarm['hint']}" for alarm in health["alarms"]
    ]
    lines += [line_of(one) for one in report.get("objects", [])]
    errors = [ErrorEvent.model_validate(one) for one in report["errors"]]
    if with_errors:
        lines += [_line(event) for event in errors[-_SHOWN_ERRORS:]] or ["  no errors are recorded"]
    elif errors:
        newest = format_rfc3339(errors[-1].time)
        lines.append(f"  {len(errors)} errors are recorded, the newest at {newest}: --errors lists them")
    return "\n".join(lines)


def _behind(consumer: Report) -> str:
    """The lag of a consumer, in words."""
    if consumer.get("of_another_copy"):
        return "done with an epoch of another copy of the spool"
    return f"{consumer['epochs_behind']} epochs behind the spool, {_for_people(consumer['lag_seconds'])} behind now"


def _completeness(consumer: Report) -> str:
    """The newest published cut of a consumer, in words; empty if it has published none."""
    if "complete_up_to" not in consumer:
        return ""
    but = "".join(f"; not {table}: {why}" for table, why in consumer["incomplete_tables"].items())
    return f"; tables complete up to {consumer['complete_up_to']}{but}"


def _maintenance(consumer: Report) -> str:
    """The maintenance of a consumer's tables, in words; empty if there was none."""
    last = f"; maintained at {consumer['maintained_at']}" if "maintained_at" in consumer else ""
    failed = consumer.get("unmaintained_tables", {}).items()
    return last + "".join(f"; {table} is not maintained: {why}" for table, why in failed)


def _line(event: ErrorEvent) -> str:
    table = f" {event.table}" if event.table else ""
    return (
        f"  {format_rfc3339(event.time)} {event.severity} {event.code}{table}: {event.message}. {event.hint}".rstrip()
    )
