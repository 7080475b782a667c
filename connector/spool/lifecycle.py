"""The life of a stream in its spool: the daemon's state, a request to pause, and what went wrong.

``state.json`` and ``errors.json`` are written by the daemon, which holds the spool's lock; ``reserve`` keeps space for
them on a disk that may fill. ``pause.json`` is written by ``spanner-cdc pause``, and deleted by ``spanner-cdc resume``,
on any machine that reaches the spool; the daemon looks for it. A pause outlives the daemon: one that is started while
the file is there reads nothing.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from secrets import token_bytes
from typing import Literal

from pydantic import Field, ValidationError

from connector.core.health.alarms import Mended
from connector.core.health.retries import LONGEST_DETAIL, Cause, Retry
from connector.core.health.states import NEVER, RetentionPeriod, StateRecord, StreamState, WatermarkHolder
from connector.spool.manifest import Document, DocumentPart, Timestamp
from connector.spool.reading import Spool, to_json
from connector.spool.storage.store import contents

STATE, PAUSE, ERRORS, RESERVE = "state.json", "pause.json", "errors.json", "reserve"
LATE_RECORD = "late_record"
"""The code of the event of a reader that a late record has stopped: a restart counts none, and would not show it."""

MOST_ERRORS = 100
"""Events that are kept; older ones are dropped."""

LONGEST_TEXT = 2000
_RESERVED = 64 * 1024
"""Bytes of a disk that are kept for the daemon's last words."""


class RetryNode(DocumentPart):
    """A :class:`connector.core.health.retries.Retry` as it is kept in a spool."""

    what: str
    text: str
    code: str = ""
    detail: str = ""
    hint: str = ""
    since: Timestamp
    last: Timestamp
    attempts: int = 1
    subject: str = ""
    parts: int = 0

    @classmethod
    def of(cls, retry: Retry) -> "RetryNode":
        """The node that stores a retry."""
        cause = replace(retry.cause, detail=retry.cause.detail[:LONGEST_DETAIL])
        return cls.model_validate({**asdict(retry), **asdict(cause)})

    def retry(self) -> Retry:
        """The retry that the node stores."""
        cause = Cause(self.text, self.code, self.detail, self.hint)
        return Retry(self.what, cause, self.since, self.last, self.attempts, self.subject, self.parts)


class _Holder(DocumentPart):
    partition: str
    watermark: Timestamp
    ahead: int


class _State(Document):
    state: StreamState
    since: Timestamp
    reason: str = ""
    hint: str = ""
    seen: Timestamp
    retention_seconds: float = 0.0
    retention_is_default: bool = False
    complete: Timestamp = 0
    retries: list[RetryNode] = Field(default_factory=list)
    clock_ahead_seconds: float = 0.0
    max_bytes: int = Field(default=0, ge=0)
    holder: _Holder | None = None


class ErrorEvent(DocumentPart):
    """An error or a warning to show to users.

    Attributes:
        time: when, nanoseconds since 1970.
        severity: WARNING or ERROR.
        code: a stable name in snake case.
        table: the table that it is about; empty if none.
        message: one line, without values of rows.
        hint: what to do; empty if nothing.
    """

    time: Timestamp
    severity: Literal["WARNING", "ERROR"]
    code: str
    table: str = ""
    message: str
    hint: str = ""


class _Errors(Document):
    errors: list[ErrorEvent] = Field(default_factory=list)


class PauseRequest(Document):
    """A request to pause, and when it was made."""

    requested: Timestamp


def state_of(spool: Spool) -> StateRecord:
    """The state that was recorded last; the one of a spool that no daemon has written, if there is none.

    Raises:
        SpoolError: it cannot be read.
    """
    found = spool.find_valid(STATE, _State)
    if found is None:
        return NEVER  # if it is of a later version, or damaged, the next daemon replaces it
    retention = RetentionPeriod(round(found.retention_seconds * 1e9), found.retention_is_default)
    retries, ahead = tuple(node.retry() for node in found.retries), round(found.clock_ahead_seconds * 1e9)
    holder = found.holder
    return StateRecord(
        found.state,
        found.since,
        found.reason,
        found.hint,
        found.seen,
        retention,
        retries,
        found.complete,
        ahead,
        found.max_bytes,
        None if holder is None else WatermarkHolder(**dict(holder)),
    )


def write_state(spool: Spool, record: StateRecord) -> None:
    """Replaces the state; the caller holds the spool's lock.

    Raises:
        SpoolError: it cannot be written.
    """
    document = _State(
        state=record.state,
        since=record.since,
        reason=record.reason[:LONGEST_TEXT],
        hint=record.hint[:LONGEST_TEXT],
        seen=record.seen,
        retention_seconds=record.retention.period / 1e9,
        retention_is_default=record.retention.is_default,
        complete=record.complete,
        retries=[RetryNode.of(retry) for retry in record.retries],
        clock_ahead_seconds=record.clock_ahead / 1e9,
        max_bytes=record.max_bytes,
        holder=None if record.holder is None else _Holder.model_validate(asdict(record.holder)),
    )
    spool.storage.replace(STATE, to_json(document))


def keep_reserve(spool: Spool) -> None:
    """Takes some space on the spool's disk, so that a daemon that ends because the disk is full can record it.

    The bytes are random, because some file systems take no space for others. A bucket is never full.

    Raises:
        SpoolError: the disk refuses.
    """
    if not spool.storage.rewrite_interval and not spool.storage.exists(RESERVE):
        with suppress(FileExistsError):
            spool.storage.create(RESERVE, token_bytes(_RESERVED))


def give_reserve_up(spool: Spool) -> None:
    """Frees the space that was taken.

    Raises:
        SpoolError: the disk refuses.
    """
    if not spool.storage.rewrite_interval:
        spool.storage.delete(RESERVE)


def pause_of(spool: Spool) -> PauseRequest | None:
    """The request to pause, if there is one. One that cannot be understood is a request, too, made at 0.

    Raises:
        SpoolError: it cannot be read.
    """
    data = contents(spool.storage, PAUSE)
    try:
        return None if data is None else PauseRequest.model_validate_json(data)
    except ValidationError:
        return PauseRequest(requested=0)


def request_pause(spool: Spool, now: int) -> None:
    """Asks the daemon of the spool, and every later one, to pause; repeating it has no effect."""
    if pause_of(spool) is None:
        spool.storage.replace(PAUSE, to_json(PauseRequest(requested=now)))


def request_resume(spool: Spool) -> bool:
    """Takes the request to pause back, durably; returns whether there was one."""
    was_requested = False
    while (found := spool.storage.find(PAUSE)) is not None:
        was_requested = True
        spool.storage.delete_version(PAUSE, found.version)  # durably: a daemon that is started later must read
    return was_requested


def errors_of(spool: Spool) -> list[ErrorEvent]:
    """The newest errors, the oldest of them first; none where they cannot be understood.

    Raises:
        SpoolError: they cannot be read.
    """
    found = spool.find_valid(ERRORS, _Errors)
    return found.errors if found else []


def late_stops(events: Iterable[ErrorEvent]) -> Mended:
    """The number of times that a late record has stopped the reader, of those that are kept, and the last. Pure."""
    times = [event.time for event in events if event.code == LATE_RECORD]
    return Mended(len(times), max(times, default=0))


def shortened(event: ErrorEvent) -> ErrorEvent:
    """The event with texts of a bounded length."""
    return event.model_copy(update={"message": event.message[:LONGEST_TEXT], "hint": event.hint[:LONGEST_TEXT]})


def add_error(spool: Spool, event: ErrorEvent) -> None:
    """Adds an error to those that are kept; the caller holds the spool's lock.

    Raises:
        SpoolError: it cannot be written.
    """
    kept = [*errors_of(spool), shortened(event)][-MOST_ERRORS:]
    spool.storage.replace(ERRORS, to_json(_Errors(errors=kept)))
