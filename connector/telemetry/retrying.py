"""Retries of processes other than the daemon, reported in the spool: sinks, their tasks, backfills, executors.

A process that has failed at something for :data:`REPORTED_AFTER` writes a document beside the consumers of the stream's
spool, repeats it while that lasts, and deletes it once it works again. Each process has a document of its own. One that
was not repeated in time is of a process that was killed, and says nothing.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from connector.core.health import retries
from connector.core.health.retries import SINK, SPANNER, WORKERS, Cause, Retry, RetryLog
from connector.core.timestamps import SECOND
from connector.errors import SpoolError
from connector.spool.lifecycle import RetryNode
from connector.spool.manifest import Document, Timestamp
from connector.spool.reading import Spool, to_json
from connector.spool.storage.failing import FAILING

if TYPE_CHECKING:
    from tenacity import RetryCallState

RETRYING = ".retrying."
"""Is in the names of the documents, between the subject and a random number of the process."""

REPORTED_AFTER = 5 * SECOND
"""The time after which a failure is reported: most retries succeed sooner, and then cost nothing."""

_REPEATED = 10 * SECOND
"""Between two reports of the same."""

STALE = 45 * SECOND
"""After so long a document that was not repeated is of a process that was killed."""

_FORGOTTEN = 3600 * SECOND
"""After so long it is deleted."""

_REMEMBERED = 10_000
"""Documents that one who looks at intervals remembers; each process has another name."""

_LOOK = 2.0
"""Seconds between two looks at what fails."""

_LAST_LOOK = 5.0
"""Seconds that the end of a task waits for a document that is being written."""


class _Document(Document):
    written: Timestamp
    retry: RetryNode


class RetryReporter:
    """Reports what a process retries.

    Args:
        spool: the stream's.
        what: the place, which names the alarm.
        subject: the sink; empty if the place has but one.
        log: of the process.
        only: the place of ``log`` whose retries about the subject are reported; empty for all of all places.
        clock: nanoseconds since 1970.
    """

    def __init__(
        self,
        spool: Spool,
        what: str,
        subject: str,
        *,
        log: RetryLog = FAILING,
        only: str = "",
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._spool = spool
        self._what = what
        self._subject = subject
        self._log = log
        self._only = only
        self._clock = clock
        self._path = f"consumers/{subject or what}{RETRYING}{secrets.token_hex(8)}"
        self._written = 0

    def look(self) -> None:
        """Writes the document, repeats it or deletes it, as is due; a spool that refuses it ends nothing."""
        now = self._clock()
        found = self._found(now)
        if found is None:
            self.withdraw()
        elif abs(now - self._written) >= _REPEATED:
            document = to_json(_Document(written=now, retry=RetryNode.of(found)))
            with suppress(SpoolError, OSError):
                if self._spool.storage.exists("spool.json"):  # else it would make a folder that is no spool
                    self._spool.storage.replace(self._path, document)
                    self._written = now

    def withdraw(self) -> None:
        """Deletes the document, if there is one."""
        if self._written:
            with suppress(SpoolError, OSError):
                self._spool.storage.delete(self._path)
                self._written = 0

    def _found(self, now: int) -> Retry | None:
        own = (self._only, self._subject)
        lasting = [
            one for one in self._log.lasting(now, REPORTED_AFTER) if not self._only or (one.what, one.subject) == own
        ]
        if not lasting:
            return None
        parts = sum(one.parts for one in lasting) if self._what in (SPANNER, WORKERS) else 0
        oldest = min(lasting, key=lambda one: one.since)
        return replace(oldest, what=self._what, subject=self._subject, parts=parts)


@contextmanager
def reporting_retries(spool: Spool, what: str, subject: str, *, of_task: bool = False) -> Iterator[None]:
    """A thread reports what this process retries while the context is open; arguments as of :class:`RetryReporter`.

    Args:
        spool: the stream's.
        what: the place.
        subject: the sink.
        of_task: whether the process has nothing else to do: what a task before has left there is not retried any more.
    """
    if of_task:
        FAILING.clear()
    reporter, ended = RetryReporter(spool, what, subject), threading.Event()

    def keep_looking() -> None:
        while not ended.wait(_LOOK):
            reporter.look()
        reporter.withdraw()

    thread = threading.Thread(target=keep_looking, name="retries", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LAST_LOOK)


class Attempts:
    """Notes the failed attempts at something that this process retries.

    Args:
        cause_of: says why it fails, without a row's value.
        part: distinguishes it from what else is retried at the time.

    Attributes:
        part: also of this thread alone.
    """

    def __init__(self, cause_of: Callable[[BaseException], Cause], part: str) -> None:
        self._cause_of = cause_of
        self.part = f"{part} {threading.get_ident()}"
        self._began = time.time_ns()

    def failed(self, error: BaseException) -> None:
        """An attempt has failed, and another follows."""
        now = time.time_ns()
        FAILING.failed(SINK, self._cause_of(error), now, part=self.part, lasted=max(now - self._began, 0))

    def before_sleep(self, state: "RetryCallState") -> None:
        """The same, as tenacity says it."""
        error = state.outcome.exception() if state.outcome is not None else None
        if error is not None:
            self.failed(error)

    def over(self) -> None:
        """It has succeeded, or is not tried any more."""
        FAILING.healed(SINK, part=self.part)


@contextmanager
def attempts(cause_of: Callable[[BaseException], Cause], part: str) -> Iterator[Attempts]:
    """Notes what this process retries while the context is open; arguments as of :class:`Attempts`."""
    noted = Attempts(cause_of, part)
    try:
        yield noted
    finally:
        noted.over()


class Heard:
    """Since when documents are as they are, by the clock of one who looks at intervals.

    The clock of another machine may be wrong: a process whose documents are repeated runs, whatever time they say.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int | None]] = {}

    def at(self, name: str, written: int, now: int) -> int | None:
        """The time when a document was written; None if its clock is far from ours and it was not repeated yet."""
        before = self._known.get(name)
        if before is not None and before[0] == written:
            return before[1]
        at = min(written, now) if abs(now - written) < STALE else None if before is None else now
        self._known.pop(name, None)
        self._known[name] = written, at
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return at


def retries_of_others(
    spool: Spool, now: int, names: Iterable[str] | None = None, *, tidy: bool = False, heard: Heard | None = None
) -> list[Retry]:
    """The retries of other processes that have failed for long.

    Args:
        spool: the stream's.
        now: nanoseconds since 1970.
        names: of the files beside the consumers; None to list them.
        tidy: whether documents of processes that were killed are deleted.
        heard: of one who looks at intervals. Others see nothing of a machine whose clock is far off.

    Raises:
        SpoolError: the spool cannot be read.
    """
    found, heard = [], heard or Heard()
    for name in spool.storage.list("consumers") if names is None else names:
        one = spool.find_valid(f"consumers/{name}", _Document) if RETRYING in name else None
        if one is None:
            continue
        at = heard.at(name, one.written, now)
        if at is not None and abs(now - at) < STALE:
            retry, fast = one.retry.retry(), one.written - at
            found.append(replace(retry, since=retry.since - fast, last=retry.last - fast))
        elif tidy and abs(now - one.written) > _FORGOTTEN:
            spool.storage.delete(f"consumers/{name}")
    return [retry for retry in retries.merged(found) if now - retry.since >= retries.LASTING]
