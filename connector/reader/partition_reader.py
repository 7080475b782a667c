"""Reads a partition: one query after another, each from the last progress, until the partition has finished."""

import asyncio
from contextlib import aclosing

import grpc
import tenacity

from connector.core.records import function_of, is_initial, partition_name
from connector.core.timestamps import SECOND
from connector.errors import DataLostError, StreamGoneError, UnreachableError, UnreadableRecordError
from connector.log import Log
from connector.reader.bounds import Bounds
from connector.reader.failing_queries import FailingQueries
from connector.reader.late_policy import LatePolicy
from connector.reader.read_state import ReadState
from connector.reader.receiver import Receiver
from connector.reader.watermark_watchdog import QueryRestartedError, WatermarkWatchdog
from connector.spanner.decoding.row_fields import UnknownRecordError
from connector.spanner.errors import CallAction, classify, query_error
from connector.spanner.partition_query import PartitionQuery, SilentStreamError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0

REFUSED_CREDENTIALS = 300.0
"""Seconds for which refused credentials are retried without an accepted query: the stream was opened with them."""

_TOO_EARLY_END = "it ended before its partition did"

_log = Log(__name__)


def unreadable(stream: str, partition: str, error: UnknownRecordError) -> UnreadableRecordError:
    """The error of a row that cannot be decoded, in a partition of a change stream."""
    return UnreadableRecordError(
        f"change stream {stream}, {partition}: {error}",
        hint="Nothing was skipped: the next run reads it again. A newer spanner-cdc may know this record; else report"
        " this line, which has no value of a row.",
    )


class PartitionReader:
    """Reads the partitions of a change stream into the graph and the buffer; one task for each calls :meth:`read`.

    Args:
        state: the reader's.
        late: decides about late records.
        watchdog: restarts queries while the watermark is stalled.
    """

    def __init__(self, state: ReadState, late: LatePolicy, watchdog: WatermarkWatchdog) -> None:
        self._state = state
        self._stream = state.stream
        self._graph = state.graph
        self._receiver = Receiver(state, late)
        self._late = late
        self._bounds = Bounds(state.span.end, state.stream.window, state.stream.clock)
        self._watchdog = watchdog
        self._failures = FailingQueries(state.metrics, heartbeat=state.stream.heartbeat)
        self._refused_since: float | None = None
        """The loop's time since which credentials have been refused, and no query was accepted."""

    async def read(self, token: str) -> None:
        """Reads a partition until it has finished; retries transient errors without limit, with backoff.

        Raises:
            SpannerCdcError: the partition cannot be read.
        """
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_ResumableError),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_PAUSE, max=_LONGEST_PAUSE),
            before_sleep=lambda state: self._warn(token, state),
        )
        finished = False
        try:
            while not finished:  # a query that moved the progress resets the backoff
                finished = await retrying(self._query_once, token)
        finally:
            self._failures.ended(token)

    async def _query_once(self, token: str) -> bool:
        """Sends a query; returns whether the partition has finished.

        Raises:
            _ResumableError: it has not finished, and its progress has not moved.
        """
        partition = self._graph[token]
        before, doubted = partition.progress, partition.doubted
        try:
            if await (self._query(token) if self._stream.first_starts is None else self._query_function(token)):
                return True
            broke = _ResumableError(_TOO_EARLY_END)
        except _ResumableError as error:
            broke = error
        if partition.doubted != doubted:
            _log.debug("a partition's end is confirmed by another query", partition=partition_name(token))
            return False
        if partition.progress == before:
            raise broke
        if is_initial(token):
            return False  # its start was found
        if isinstance(broke.__cause__, SilentStreamError):
            self._failures.fell_silent(token, broke.__cause__, str(broke))
        _log.info("a partition's query is sent again", partition=partition_name(token), reason=str(broke))
        return False

    async def _query(self, token: str) -> bool:
        """Sends one query and reads it to its end; returns whether the partition has finished.

        Raises:
            _ResumableError: it broke, and can be sent again.
            SpannerCdcError: it must not be sent again.
        """
        if self._graph.nothing_left(token):
            self._state.changed.set()
            return True
        try:
            await self._bounds.settle(token)
        except UnreachableError as error:  # the call's error means the same as one of the query
            cause = error.__cause__ if isinstance(error.__cause__, grpc.RpcError) else error
            raise self._error(cause, token, self._graph.query_start(token)) from cause
        start, before = self._graph.query_start(token), self._graph[token].progress
        bound = self._bounds.of(token, start)
        proven = self._bounds.proven(bound)
        self._graph.sent(token)
        self._state.metrics.queries += 1
        clean = finished = False
        try:
            await self._pull(token, start, bound)
            clean = True
            finished = self._graph.ended(token, proven=proven)
        except (grpc.RpcError, SilentStreamError, QueryRestartedError, UnknownRecordError) as error:
            raise self._error(error, token, start) from error
        finally:
            self._state.flow.arrived(token)
            if not finished:
                progress = self._graph.broke(token)
                self._bounds.ended(token, bound, clean=clean, news=progress > before)
                self._state.buffer.discard(token, beyond=progress)
            self._state.changed.set()
        return finished

    async def _query_function(self, token: str) -> bool:
        """As :meth:`_query`, of a placement's function, which may be young, empty or gone."""
        try:
            finished = await self._query(token)
            if not finished and is_initial(token) and self._graph[token].ends_at is None:
                await self._find_start(token, None)
        except DataLostError as error:
            await self._find_start(token, error)
            finished = False
        except StreamGoneError:
            if not self._graph[token].is_empty:
                raise
            self._graph.functions.gone(token)
            self._state.changed.set()
            return True
        return finished

    async def _find_start(self, token: str, refused: DataLostError | None) -> None:
        """Finds the first start of the initial query of a placement's function.

        Args:
            token: its id.
            refused: the refusal of its start; None if it has returned no partitions.

        Raises:
            DataLostError: the refusal, because it is not about such a function.
            _ResumableError: that start cannot be found now, or the answer was wrong.
            SpannerCdcError: it must not be tried again.
        """
        function, starts = function_of(token), self._stream.first_starts
        if function is None or starts is None or not is_initial(token):
            raise refused or _ResumableError(_TOO_EARLY_END)
        start = self._graph.query_start(token)
        try:
            if refused is not None:
                first: int | None = await starts.accepted(function, start)
            else:
                now, end = await self._stream.clock.read(), self._state.span.end
                upto = now if end is None else min(now, end)
                first = await starts.with_partitions(function, start, upto)
        except (grpc.RpcError, SilentStreamError, UnknownRecordError, UnreachableError) as error:
            raise self._error(error, token, start) from error
        if first == start:
            raise _ResumableError(_TOO_EARLY_END if refused is None else refused.message) from refused
        if first is None:
            self._graph.functions.empty_until(token, upto)
        else:
            self._graph.functions.asked_from(token, first)
        self._state.changed.set()
        if first is None:
            await asyncio.sleep(self._stream.heartbeat / SECOND)

    async def _pull(self, token: str, start: int, bound: int | None) -> None:
        """Sends a query and takes what it returns, until it ends with OK."""
        progress = self._graph[token].progress
        self._failures.waits(token)
        async with self._watchdog.query(token) as running:
            query = PartitionQuery(token, start, bound, running.timeouts)
            async with aclosing(self._stream.queries.read(query)) as messages:
                accepted = False
                async for items in messages:
                    if not accepted:
                        accepted, self._refused_since = True, None
                    self._state.flow.arrived(token)
                    has_news = self._receiver.receive(token, items)
                    if self._graph[token].progress > progress:
                        progress = self._graph[token].progress
                        self._failures.healed(token)
                    self._state.changed.set()
                    if has_news:
                        running.progressed()
                    await self._late.settled()
                    while not self._state.admits(token):
                        await self._state.flow.wait(token, self._graph[token].progress)
                        running.progressed()
                        self._failures.waits(token)

    def _error(self, error: Exception, token: str, start: int) -> Exception:
        """The meaning of an error of a query: a :class:`_ResumableError`, or the error that ends the reader."""
        match error:
            case grpc.RpcError():
                found = classify(error)
                if found.action is not CallAction.STOP and not (
                    found.action is CallAction.WAIT and self._refused_for_long()
                ):
                    return _ResumableError(str(found))
                return query_error(found, stream=self._stream.name, token=token, start=start)
            case UnknownRecordError():
                return unreadable(self._stream.name, partition_name(token), error)
        return _ResumableError(str(error))

    def _refused_for_long(self) -> bool:
        """Notes that credentials are refused, and returns whether that has lasted too long."""
        now = asyncio.get_running_loop().time()
        if self._refused_since is None:
            self._refused_since = now
        return now - self._refused_since > REFUSED_CREDENTIALS

    def _warn(self, token: str, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self._failures.failed(token, error.__cause__ if error else None, str(error))
        _log.warning(
            "a partition's query broke and is sent again",
            partition=partition_name(token),
            error=str(state.outcome.exception()) if state.outcome else "",
            attempt=state.attempt_number,
            pause_s=round(state.upcoming_sleep, 3),
        )


class _ResumableError(Exception):
    """A query that broke and is sent again from the partition's progress."""
