"""The daemon's side of a stream's states: records them, shows that it is alive, and pauses when it is asked to."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from connector.core.health.retries import DAEMON, Retry
from connector.core.health.states import (
    END_REACHED,
    NEVER,
    RetentionPeriod,
    StateRecord,
    StreamState,
    WatermarkHolder,
    failed,
)
from connector.core.timestamps import SECOND
from connector.errors import LateRecordError, SpannerCdcError, SpoolError, line_and_exit_code
from connector.log import Log
from connector.reader.stopping import Stoppable, StopRequest
from connector.spool.lifecycle import (
    LATE_RECORD,
    MOST_ERRORS,
    ErrorEvent,
    add_error,
    errors_of,
    give_reserve_up,
    keep_reserve,
    pause_of,
    shortened,
    state_of,
    write_state,
)
from connector.spool.reading import Spool
from connector.threads import first_of, in_background, tried_in_thread

SIGN_OF_LIFE = 10.0
"""Seconds between two signs of life."""

_POLLS_OF_A_BUCKET = 5
"""The factor by which polls for requests are rarer in Cloud Storage, which bills reads."""

_POLL = 1.0

_log = Log(__name__)


class Lifecycle:
    """Records the states of the one daemon that holds a spool; see :func:`living`.

    Args:
        spool: the spool; the caller holds its lock.
        before: the state that was recorded last.
        errors: those that are kept, the newest last.
        clock: nanoseconds since 1970.

    Attributes:
        record: the state.
        failing: returns what has failed for long at a time, and is retried; recorded with each sign of life.
        complete: returns the timestamp up to which all that was committed is in the spool; recorded likewise.
        holder: returns the partition that holds the watermark of a reader that is behind; recorded likewise.
        has_read: whether this daemon has read on, so that the errors of those before it are over.
    """

    def __init__(
        self,
        spool: Spool,
        before: StateRecord,
        errors: Sequence[ErrorEvent] = (),
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._spool = spool
        self._clock = clock
        self.failing: Callable[[int], Iterable[Retry]] = lambda _: ()
        self.complete: Callable[[], int] = lambda: 0
        self.holder: Callable[[], WatermarkHolder | None] = lambda: None
        self.has_read: Callable[[], bool] = lambda: False
        self.record = before
        self._errors = deque(errors, maxlen=MOST_ERRORS)
        self._lock = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._unwanted = asyncio.Event()
        self._unwanted.set()
        self._has_drained = False

    @property
    def errors(self) -> list[ErrorEvent]:
        """The errors so far, the newest last."""
        return list(self._errors)

    @property
    def poll(self) -> float:
        """Seconds between two polls for requests."""
        return _POLL * (_POLLS_OF_A_BUCKET if self._spool.storage.rewrite_interval else 1)

    @property
    def pause_requested(self) -> bool:
        """True if the stream is to be paused."""
        return self._wanted.is_set()

    async def enter(self, state: StreamState, *, reason: str = "", hint: str = "") -> None:
        """Records a state; a spool that refuses the record keeps nothing from running."""
        await self._write(lambda record: record.to(state, self._clock(), reason=reason, hint=hint))

    async def retains(self, period: RetentionPeriod) -> None:
        """Records how long Spanner keeps the stream's records."""
        if period != self.record.retention:
            await self._write(lambda record: replace(record, retention=period))

    async def fail(self, error: Exception) -> None:
        """Records the error that ends the daemon."""
        line, exit_code = line_and_exit_code(error)
        hint = error.hint if isinstance(error, SpannerCdcError) else ""
        message = line.removesuffix(hint).rstrip(". ")
        await tried_in_thread(SpoolError, give_reserve_up, self._spool)
        await self._write(lambda record: failed(record, self._clock(), message, hint, exit_code))
        code = LATE_RECORD if isinstance(error, LateRecordError) else "daemon_failed"
        await self.report(code, message, hint=hint, severity="ERROR")

    async def report(
        self, code: str, message: str, *, severity: str = "WARNING", table: str = "", hint: str = ""
    ) -> None:
        """Keeps an error in the spool, for ``spanner-cdc status --errors``."""
        event = ErrorEvent(
            time=self._clock(), severity="ERROR" if severity == "ERROR" else "WARNING", code=code, table=table,
            message=message, hint=hint,
        )  # fmt: skip
        self._errors.append(shortened(event))
        async with self._lock:
            await tried_in_thread(SpoolError, add_error, self._spool, event)

    async def _write(self, change: Callable[[StateRecord], StateRecord]) -> None:
        """Changes the state once no other thread writes it: a sign of life must not undo a later state."""
        async with self._lock:
            self.record = change(self.record)
            error = await tried_in_thread(SpoolError, write_state, self._spool, self.record)
            if error is not None:
                _log.debug("the state could not be recorded", reason=str(error))

    async def look(self) -> None:
        """Looks whether a pause is requested."""
        pause = await tried_in_thread(SpoolError, pause_of, self._spool)
        if isinstance(pause, SpoolError):
            _log.debug("whether a pause is requested is not known", reason=str(pause))
            return
        (self._wanted.clear if pause is None else self._wanted.set)()
        (self._unwanted.set if pause is None else self._unwanted.clear)()

    async def keep_alive(self) -> None:
        """Looks for requests, and shows signs of life, until it is cancelled."""
        while True:
            await asyncio.sleep(self.poll)
            await self.look()
            is_healed = self.has_read() and any(retry.what == DAEMON for retry in self.record.retries)
            if is_healed or abs(self._clock() - self.record.seen) >= SIGN_OF_LIFE * 1e9:
                await self.breathe()

    async def breathe(self) -> None:
        """Records a sign of life, and what is being retried."""

        def alive(record: StateRecord) -> StateRecord:
            earlier = [] if self.has_read() else [retry for retry in record.retries if retry.what == DAEMON]
            now = self._clock()
            return record.alive(now, [*earlier, *self.failing(now)], self.complete(), self.holder())

        await self._write(alive)

    async def compared(self, ahead: int) -> None:
        """Records by how many nanoseconds this machine's clock is ahead of Spanner's."""
        if abs(ahead - self.record.clock_ahead) >= SECOND:
            await self._write(lambda record: replace(record, clock_ahead=ahead))

    async def limits(self, max_bytes: int) -> None:
        """Records the size of the spool at which the daemon waits for its consumers."""
        if max_bytes != self.record.max_bytes:
            await self._write(lambda record: replace(record, max_bytes=max_bytes))

    async def drain(self, reader: Stoppable, *, reason: str) -> None:
        """Drains a reader, after which another one continues unless the stream is paused: :meth:`continues`."""
        await self.enter(StreamState.DRAINING, reason=reason)
        self._has_drained = True
        reader.stop()

    @asynccontextmanager
    async def pausing(self, reader: Stoppable, stop: StopRequest) -> AsyncIterator[None]:
        """Surrounds the running of a reader: drains it when a pause is requested, and records that it drains."""

        async def pause() -> None:
            await self._wanted.wait()
            _log.info("pausing: what is complete is delivered first; `spanner-cdc resume` continues")
            await self.drain(reader, reason="a pause is requested")

        async def drain() -> None:
            await stop.wait()
            await self.enter(StreamState.DRAINING, reason="a stop is requested")

        async with in_background(pause(), name="pause"), in_background(drain(), name="drain"):
            yield

    async def continues(self, stop: StopRequest) -> bool:
        """True if reading is to continue after a reader has returned, because a pause or a reload has drained it.

        It waits until a pause is over; one that was taken back while the reader drained has drained it, too.
        """
        drained, self._has_drained = self._has_drained, False
        return (drained or self.pause_requested) and not stop.requested and await self.resumed(stop)

    async def resumed(self, stop: StopRequest) -> bool:
        """Waits while the stream is paused; False if a stop is requested meanwhile."""
        if not self.pause_requested:
            return not stop.requested
        stop.reading = True  # a signal ends the pause, and the daemon
        why = "`spanner-cdc pause` was run; `spanner-cdc resume CONFIG` continues"
        await self.enter(StreamState.PAUSED, reason=why)
        _log.warning("paused: nothing is read until `spanner-cdc resume`; Spanner's retention continues")
        await first_of(self._unwanted.wait(), stop.wait())
        if stop.requested:
            return False
        stop.reading = False  # until it reads, a signal ends it at once, as at every start
        _log.info("resumed")
        await self.enter(StreamState.STARTING)
        return True


@asynccontextmanager
async def living(spool: Spool, stop: StopRequest, *, max_bytes: int = 0) -> AsyncIterator[Lifecycle]:
    """The states of a daemon while the context is open; the caller holds the spool's lock.

    Sinks read ``max_bytes`` there, at which the daemon waits for its consumers: their configurations may differ.

    An error that leaves the context is recorded as the state, and as an event. Without one the stream is not started.
    """
    recorded = await tried_in_thread(SpoolError, _recorded, spool)
    before, errors = (NEVER, []) if isinstance(recorded, SpoolError) else recorded
    life = Lifecycle(spool, replace(before, max_bytes=max_bytes), errors)
    await life.look()
    await tried_in_thread(SpoolError, keep_reserve, spool)
    await life.enter(StreamState.STARTING)
    try:
        async with in_background(life.keep_alive(), name="signs of life"):
            yield life
    except Exception as error:
        await life.fail(error)
        raise
    except BaseException:
        await life.enter(StreamState.NOT_STARTED, reason="the daemon was stopped at once")
        raise
    why = "the daemon was stopped" if stop.requested else END_REACHED
    await life.enter(StreamState.NOT_STARTED, reason=why)


def _recorded(spool: Spool) -> tuple[StateRecord, list[ErrorEvent]]:
    return state_of(spool), errors_of(spool)
