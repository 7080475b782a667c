"""Alarms: what an engineer on call should know, why, and what to do. Pure: from numbers to sentences.

An alarm is raised while its condition holds, and has a stable name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from connector.core.health.retries import SINK, SPANNER, WORKERS, Retry
from connector.core.health.states import ALIVE, StateRecord, StreamState, WatermarkHolder
from connector.core.late_records import LateReport
from connector.core.timestamps import SECOND, format_duration, format_lag, format_rfc3339, format_second

WARN_OF_RETENTION, ERROR_OF_RETENTION = 0.5, 0.8
"""Shares of Spanner's retention that are used up."""

BEHIND = 5 * 60 * SECOND
"""From here on a reader or a consumer is behind."""

CLOCK_OFF = 60 * SECOND
"""From here on this machine's clock is wrong."""

AWAY = 60 * SECOND
"""A consumer that has recorded nothing for so long, and has epochs to read, is taken for one that does not run."""

_RESTARTED_WITHIN = 600 * SECOND
_NEARLY_FULL = 0.9
_SHOWN_TABLES = 5
_LONG_PAUSE = _RECENTLY = 3600 * SECOND
AHEAD = 60 * SECOND
"""By how much a partition is ahead of the one that holds the watermark."""

Severity = Literal["WARNING", "ERROR"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm.

    Attributes:
        name: stable, in snake case.
        severity: an ERROR needs attention at once.
        message: one line.
        hint: what to do.
        subject: what it is about, where there may be several of a name: a consumer.
    """

    name: str
    severity: Severity
    message: str
    hint: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerLag:
    """A consumer, and how many epochs it has not passed.

    ``watermark`` is the timestamp up to which all commits are delivered, in Unix nanoseconds; 0 while unknown. It is
    right before the first commit in the spool that is not delivered, or :attr:`Facts.spooled` if there is none.
    ``recorded`` is when it last recorded its progress, in Unix nanoseconds; 0 if that is not known. ``is_stray`` says
    that it is done with an epoch of another copy of the spool: then it may lack what this copy has.
    """

    name: str
    watermark: int
    epochs_behind: int
    recorded: int = 0
    is_stray: bool = False


@dataclass(frozen=True, slots=True)
class Mended:
    """The number of problems that were mended since the daemon started, and the time of the last; 0 if none was.

    ``why`` is the last one's cause, in one line; empty if it is not known.
    """

    times: int = 0
    at: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class RefusedDaemon:
    """A daemon that was refused the spool, because another one writes it: its process, and when in Unix nanoseconds."""

    host: str
    process: int
    at: int


@dataclass(frozen=True, slots=True)
class FailedSink:
    """A sink that has ended with an error: when, in nanoseconds since 1970, and the error's line and hint."""

    name: str
    at: int
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class KeptLess:
    """Less is kept in the spool than ``spool.keep`` says, because of its size; all in nanoseconds.

    Attributes:
        since: when the first epoch was deleted early, since 1970.
        keep: the option.
        kept: the commit time that the spool spans.
    """

    since: int
    keep: int
    kept: int


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts from which alarms are derived; timestamps are Unix nanoseconds, 0 where there is none.

    Attributes:
        now: the clock.
        state: of the stream, as seen.
        watermark: of the newest epoch; the spool's start before there is one.
        complete: up to which all that was committed is in the spool, as far as the daemon knows. An idle stream is read
            on, but has nothing to seal.
        consumers: those of the spool.
        spool_bytes: of its epochs.
        max_bytes: at which the reader waits; 0 if unknown.
        stopped_tables: why a table is stopped, of those that the sink has stopped.
        dead_letters: rows that are dead letters.
        holder: of the watermark; None if it is not known.
        standstills: times that the watermark was stalled, and queries were restarted.
        sink_restarts: times that the sink's process was restarted.
        retries: what has failed for long, and is retried.
        failed_sinks: sinks that have ended with an error, and have delivered nothing since.
        kept_less: how much less is kept than is to be; None if all is.
        late: times that a late record has stopped the reader.
        refused: the second daemon that was refused last; None if none was.
        missing: late records and incomplete transactions, whose changes epochs may lack.
        unfinished: the backfills and repairs that are not done, such as ``repair 2``.
    """

    now: int
    state: StateRecord
    watermark: int = 0
    consumers: Sequence[ConsumerLag] = ()
    spool_bytes: int = 0
    max_bytes: int = 0
    stopped_tables: Mapping[str, str] = field(default_factory=dict)
    dead_letters: int = 0
    holder: WatermarkHolder | None = None
    standstills: Mended = Mended()
    sink_restarts: Mended = Mended()
    retries: Sequence[Retry] = ()
    failed_sinks: Sequence[FailedSink] = ()
    complete: int = 0
    kept_less: KeptLess | None = None
    late: Mended = Mended()
    refused: RefusedDaemon | None = None
    missing: LateReport = field(default_factory=LateReport)
    unfinished: Sequence[str] = ()

    @property
    def spooled(self) -> int:
        """The timestamp up to which all that was committed is in the spool."""
        return max(self.watermark, self.complete)

    @property
    def lag(self) -> int:
        """The nanoseconds since then; changes committed since may not have been read or sealed yet."""
        return max(self.now - self.spooled, 0)


def retention_used(facts: Facts) -> float | None:
    """The share of Spanner's retention that lies between the watermark and now; None if unknown, or all is read."""
    if facts.state.is_complete or not (facts.watermark and facts.state.retention.period):
        return None
    return max(facts.now - facts.watermark, 0) / facts.state.retention.period


def alarms(facts: Facts) -> list[Alarm]:
    """All alarms, the errors first."""
    found = [
        *_of_state(facts),
        *failing(facts),
        *_of_clock(facts),
        *_of_retention(facts),
        *_of_lag(facts),
        *_of_consumers(facts),
        *_of_spool(facts),
        *_of_sink(facts),
        *_of_second_daemon(facts),
        *_of_mended(facts),
    ]
    return sorted(found, key=lambda alarm: alarm.severity != "ERROR")


class AlarmLog:
    """The alarms that started and ended since the last call, compared by name because their figures change."""

    def __init__(self) -> None:
        self._raised: dict[tuple[str, str], tuple[Alarm, int]] = {}

    def changes(self, raised: Sequence[Alarm], now: int) -> tuple[list[Alarm], list[Alarm]]:
        """The alarms that have started, or have become more severe; and those that have ended.

        Args:
            raised: the alarms of now.
            now: nanoseconds since 1970.
        """
        before = self._raised
        current = {(alarm.name, alarm.subject): alarm for alarm in reversed(raised)}
        started = [
            alarm
            for key, alarm in current.items()
            if key not in before or (alarm.severity, before[key][0].severity) == ("ERROR", "WARNING")
        ]
        self._raised = {key: (alarm, before[key][1] if key in before else now) for key, alarm in current.items()}
        return started, [alarm for key, (alarm, _) in before.items() if key not in current]

    def since(self, alarm: Alarm) -> int | None:
        """The start of an alarm, in Unix nanoseconds; None if :meth:`changes` has not seen it yet."""
        _, since = self._raised.get((alarm.name, alarm.subject), (alarm, None))
        return since


def summary(facts: Facts, raised: Sequence[Alarm]) -> str:
    """One sentence: the worst alarm, or what the stream is doing, or that all is well."""
    if raised:
        return raised[0].message
    if facts.state.state is not StreamState.RUNNING:
        state = f"the stream is {facts.state.state}".replace("is Not started", "is not started")
        return f"{state}: {facts.state.reason}" if facts.state.reason else state
    if not facts.watermark:
        return "nothing is sealed yet"
    return f"replication is healthy, {format_lag(facts.lag)} behind"


def _of_state(facts: Facts) -> Iterator[Alarm]:
    state = facts.state
    if state.state in (StreamState.FAILED, StreamState.FAILED_PERMANENTLY):
        hint = state.hint or "See the daemon's log; once the cause is gone, start it again: nothing is lost."
        yield Alarm("stream_failed", "ERROR", state.reason, hint)
    if state.state is StreamState.PAUSED and facts.now - state.since > _LONG_PAUSE:
        since = f"the stream is paused since {format_rfc3339(state.since)}"
        hint = "`spanner-cdc resume CONFIG` continues it; Spanner's retention continues."
        yield Alarm("paused_for_long", "WARNING", since, hint)


def failing(facts: Facts) -> list[Alarm]:
    """An alarm for each place whose retries have failed for long, the one that has failed longest first."""
    if facts.state.state in (StreamState.FAILED, StreamState.FAILED_PERMANENTLY):
        return [_of_retry(retry) for retry in facts.retries if retry.what == SINK]  # no daemon retries anything
    return [_of_retry(retry) for retry in sorted(facts.retries, key=lambda retry: retry.since)]


def _of_retry(retry: Retry) -> Alarm:
    cause, reads = retry.cause, retry.what in (SPANNER, WORKERS)
    count = retry.parts if reads else 0
    parts = f"; {count} partition{'s are' if count > 1 else ' is'} not read" if count else ""
    message = f"{cause}, since {format_second(retry.since // SECOND)}Z{parts}"
    retried = "It is retried for as long as it takes." if reads else ""
    hint = f"{cause.hint} {retried}".strip()
    return Alarm(f"{retry.what}_failing", "ERROR", message, hint, retry.subject)


def _of_clock(facts: Facts) -> Iterator[Alarm]:
    ahead = facts.state.clock_ahead
    if not ahead or facts.state.state not in ALIVE:
        return
    message = (
        f"this machine's clock is {format_lag(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} Spanner's:"
        " lags, other alarms, and what is left of the retention, are wrong by as much"
    )
    hint = "Check how the machine's time is synchronized. The data is not affected: the reader goes by Spanner's clock."
    yield Alarm("clock_off", "ERROR", message, hint)


def _of_retention(facts: Facts) -> Iterator[Alarm]:
    used = retention_used(facts)
    if used is None or used < WARN_OF_RETENTION:
        return
    left = facts.watermark + facts.state.retention.period
    message = (
        f"{min(used, 1):.0%} of {facts.state.retention} is used up: what was committed after the watermark"
        f" {format_rfc3339(facts.watermark)} is lost from {format_rfc3339(left)} on"
    )
    severity: Severity = "ERROR" if used >= ERROR_OF_RETENTION else "WARNING"
    hint = "Let the reader run: start it, resume it, or make room in its spool. Raise the stream's retention_period."
    yield Alarm("retention_running_out", severity, message, hint)


def _of_lag(facts: Facts) -> Iterator[Alarm]:
    lag = facts.lag
    if not facts.watermark or facts.state.state is not StreamState.RUNNING or lag <= BEHIND:
        return
    message, holder = f"the reader is {format_lag(lag)} behind", facts.holder
    if holder is None or not holder.ahead:
        hint = "It may be catching up: see whether the watermark advances, and the log for what holds it."
        yield Alarm("reader_behind", "WARNING", message, hint)
        return
    at = f"{holder.partition} holds the watermark at {format_rfc3339(holder.watermark)}"
    hint = "If it does not advance, the reader restarts its query and logs why; a hot partition is split by Spanner."
    yield Alarm("partition_behind", "WARNING", f"{message}: {at}; {holder.ahead} partitions are ahead of it", hint)


def _of_consumers(facts: Facts) -> Iterator[Alarm]:
    for consumer in facts.consumers:
        if consumer.is_stray:
            message = (
                f"consumer {consumer.name} is done with an epoch of another copy of this spool, which was put back from"
                " an older one: its lag is not known, and nothing is pruned"
            )
            hint = f"Restore the newer copy, or drop it: `spanner-cdc spool PATH --forget {consumer.name}`."
            yield Alarm("consumer_of_another_copy", "ERROR", message, hint, consumer.name)
            continue
        lag = facts.spooled - consumer.watermark
        if consumer.watermark and consumer.epochs_behind and lag > BEHIND:
            message = (
                f"consumer {consumer.name} is {consumer.epochs_behind} epochs, {format_lag(lag)}, behind the spool"
            )
            hint = "It runs. If it does not catch up, it is too slow for what is committed: give it more resources."
            if facts.now - consumer.recorded > AWAY:
                hint = f"See whether it runs. If it will not return: `spanner-cdc spool PATH --forget {consumer.name}`."
                if facts.unfinished:
                    hint = _waits(facts.unfinished)
                if consumer.recorded:
                    message += f", and has recorded nothing since {format_second(consumer.recorded // SECOND)}Z"
            yield Alarm("consumer_behind", "WARNING", message, hint, consumer.name)


def _waits(unfinished: Sequence[str]) -> str:
    which = " and ".join(unfinished)
    is_not = f"{which}, which {'is' if len(unfinished) == 1 else 'are'} not finished"
    return f"See whether it runs. A sink into Spanner waits for {is_not}: `spanner-cdc backfill CONFIG` finishes it."


def _of_spool(facts: Facts) -> Iterator[Alarm]:
    if facts.max_bytes and facts.spool_bytes > _NEARLY_FULL * facts.max_bytes:
        slowest = max(facts.consumers, key=lambda consumer: consumer.epochs_behind, default=None)
        who = f"the slowest consumer is {slowest.name}" if slowest else "it has no consumer"
        message = f"the spool holds {facts.spool_bytes / facts.max_bytes:.0%} of spool.max_bytes; {who}"
        hint = "The reader waits once it is full. Raise spool.max_bytes, or see to it."
        yield Alarm("spool_nearly_full", "WARNING", message, hint)
    if less := facts.kept_less:
        message = (
            f"the spool keeps {format_duration(less.kept)} of the {format_duration(less.keep)} that spool.keep says,"
            f" since {format_second(less.since // SECOND)}Z: more is larger than four fifths of spool.max_bytes"
        )
        hint = "Older epochs are deleted, as no consumer needs them. Raise spool.max_bytes, or lower spool.keep."
        yield Alarm("spool_keeps_less", "WARNING", message, hint)
    if missing := facts.missing.count:
        first, last = format_rfc3339(facts.missing.first), format_rfc3339(facts.missing.last)
        message = (
            f"epochs may lack changes that were committed from {first} to {last}: late/ in the spool has {missing}"
            f" document{'s' if missing > 1 else ''} of late records or incomplete transactions"
        )
        hint = "`spanner-cdc verify CONFIG --repair` heals each destination; then move the documents out of late/."
        yield Alarm("changes_missing", "WARNING", message, hint)


def _of_sink(facts: Facts) -> Iterator[Alarm]:
    for sink in facts.failed_sinks:
        message = f"sink {sink.name} has failed at {format_second(sink.at // SECOND)}Z, and has delivered nothing since"
        hint = sink.hint or "Once the cause is gone, start it again: it continues after what it has delivered."
        forget = f"If it will not return: `spanner-cdc spool PATH --forget {sink.name}`."
        yield Alarm("sink_failed", "ERROR", f"{message}: {sink.message}", f"{hint} {forget}", sink.name)
    if facts.stopped_tables:
        shown = sorted(facts.stopped_tables.items())[:_SHOWN_TABLES]
        more = f" and {left} more" if (left := len(facts.stopped_tables) - len(shown)) else ""
        tables = ", ".join(f"{table} ({why.rstrip('.')})" for table, why in shown)
        hint = (
            "Repair the reason; then `spanner-cdc dead-letters replay CONFIG` writes what came since, and the table"
            " continues. The others are not affected."
        )
        yield Alarm("tables_stopped", "ERROR", f"the sink has stopped tables: {tables}{more}", hint)
    if facts.dead_letters:
        message = f"{facts.dead_letters} rows are dead letters"
        hint = "`spanner-cdc dead-letters list CONFIG` has them by reason, and `replay` sends them again."
        yield Alarm("dead_letters", "WARNING", message, hint)


def _of_second_daemon(facts: Facts) -> Iterator[Alarm]:
    """An alarm about a second daemon, until its manager has not started it again for a while."""
    refused = facts.refused
    if refused is None or facts.now - refused.at > _RESTARTED_WITHIN or facts.state.state not in ALIVE:
        return
    message = (
        f"a second daemon (process {refused.process} on {refused.host}) was refused this spool at"
        f" {format_second(refused.at // SECOND)}Z, because one writes it already"
    )
    hint = "Stop the second one, or give it a spool.path of its own. The first one is not disturbed."
    yield Alarm("second_daemon", "WARNING", message, hint)


def _of_mended(facts: Facts) -> Iterator[Alarm]:
    """Alarms about problems that have ended in the last hour."""
    stalled, restarts, late = facts.standstills, facts.sink_restarts, facts.late
    if stalled.times and facts.now - stalled.at < _RECENTLY:
        message = f"the watermark was stalled {stalled.times} times, last at {format_rfc3339(stalled.at)}"
        hint = 'Queries were restarted: the log names their partitions. If it recurs, see operations, "stalled".'
        yield Alarm("stream_was_stalled", "WARNING", message, hint)
    if late.times and facts.now - late.at < _RECENTLY:
        message = f"late records have stopped the reader {late.times} times, last at {format_rfc3339(late.at)}"
        hint = "Spanner broke a promise: the log has the transaction; run `spanner-cdc audit CONFIG`."
        yield Alarm("records_were_late", "WARNING", message, hint)
    if restarts.times and facts.now - restarts.at < _RECENTLY:
        times, last, why = restarts.times, format_rfc3339(restarts.at), restarts.why.rstrip(".")
        message = f"the sink was restarted {times} times, last at {last}" + (f", after: {why}" if why else "")
        yield Alarm("sink_restarted", "WARNING", message, "The log has more of it. It continues by itself.")
