"""Opens a change stream for reading: connects, finds the stream, and checks what can be checked before reading.

Shared by the daemon and by ``tail``, so that both reject the same things before anything starts.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import grpc
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from connector.config import SourceConfig, parse_duration, resolve_timestamp
from connector.core.dialects import IMMUTABLE, MUTABLE, Dialect
from connector.core.filters import RecordFilter
from connector.core.health.states import RetentionPeriod
from connector.core.masking.rules import HASH, ColumnRules
from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN, partition_id, partition_name
from connector.core.schemas import TableSchema
from connector.core.timestamps import MINUTE, format_rfc3339
from connector.envelope.envelope import Source
from connector.errors import BeforeStreamError, ConfigurationError, DataLostError, SpannerCdcError, UnreachableError
from connector.log import Log, style
from connector.process import cores
from connector.reader.flow_control import FlowControl
from connector.reader.late_policy import DeadLetterStore
from connector.reader.partition_reader import unreadable
from connector.reader.placements.first_starts import FirstStarts
from connector.reader.placements.functions import StreamFunctions
from connector.reader.placements.listing import lister_of
from connector.reader.placements.watching import FunctionsWatch
from connector.reader.placements.windows import WindowFunctions
from connector.reader.read_state import QueriedStream, Range
from connector.reader.scheduler import Scheduler
from connector.reader.sealer import SealedEpochSink
from connector.spanner.client import SETUP_TIMEOUT, SpannerClient
from connector.spanner.clock import SpannerClock
from connector.spanner.decoding.row_fields import UnknownRecordError
from connector.spanner.discovery import (
    DEFAULT_RETENTION,
    ChangeStream,
    change_stream_names,
    change_stream_options,
    current_timestamp,
    dialect_of,
    find_change_stream,
    primary_keys,
)
from connector.spanner.errors import CallAction, classify, no_answer_hint, query_error
from connector.spanner.key_order import KeyOrder
from connector.spanner.partition_query import (
    PartitionQueries,
    PartitionQuery,
    SendsQueries,
    SilentStreamError,
    StreamAddress,
)
from connector.spanner.workers.frames import WorkerSetup
from connector.spanner.workers.pool import Workers
from connector.telemetry.metrics import ReaderMetrics

WINDOW = 30 * MINUTE
"""The longest time by which a query may end in the future in the MUTABLE_KEY_RANGE mode."""

MOST_BY_DEFAULT = 4
"""The most workers where their number is not configured."""


_log = Log(__name__)

_SILENT_PROBES = 3
"""Attempts at a start that gets no message in time, of which each waits twice as long as the one before."""


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A change stream that was found and can be read.

    ``now`` is Spanner's clock when it was opened, ``unmatched`` the configured patterns that match no watched table.
    ``functions`` are the read functions of placements, or None if the stream has one function alone.
    """

    client: SpannerClient
    config: SourceConfig
    dialect: Dialect
    stream: ChangeStream
    source: Source
    filter: RecordFilter
    now: int
    unmatched: tuple[str, ...] = ()
    functions: StreamFunctions | None = None
    unmatched_columns: tuple[str, ...] = ()
    """The patterns of ``source.columns`` that match no watched column, each after its option."""

    @property
    def kept_tables(self) -> tuple[TableSchema, ...]:
        """The watched tables that ``source.tables`` keeps."""
        return tuple(table for table in self.stream.tables if self.filter.keeps(table.table))

    def warn_of_tables(self) -> None:
        """Warns of a stream without tables, and of table patterns that match none: most likely a table was dropped."""
        if not self.stream.tables and self.config.database_role:
            _log.warning(
                "the database role sees no table that the change stream watches, if it watches any",
                change_stream=self.stream.name,
                role=self.config.database_role,
            )
        elif not self.stream.tables:
            _log.warning(
                "the change stream watches no table, so that nothing is recorded: ALTER CHANGE STREAM ... SET FOR",
                change_stream=self.stream.name,
            )
        if self.unmatched and self.config.database_role:
            _log.warning(
                "patterns of source.tables cannot be checked: INFORMATION_SCHEMA shows a database role only the tables"
                " that it may read; records are matched by the names of their tables",
                change_stream=self.stream.name,
                role=self.config.database_role,
                patterns=", ".join(self.unmatched),
            )
        elif self.unmatched:
            _log.warning(
                "source.tables names tables that the change stream no longer watches; the other tables are read",
                change_stream=self.stream.name,
                patterns=", ".join(self.unmatched),
            )
        if self.unmatched_columns:
            _log.warning(
                "source.columns names columns that the change stream does not watch, or that a database role does not"
                " see: nothing is excluded or hashed by these patterns until a column matches",
                change_stream=self.stream.name,
                patterns=", ".join(self.unmatched_columns),
            )

    @property
    def retention(self) -> RetentionPeriod:
        """The time for which Spanner keeps its records."""
        return RetentionPeriod(parse_duration(self.stream.retention_period), self.stream.retention_is_default)

    async def retention_now(self) -> RetentionPeriod | None:
        """The time for which Spanner keeps its records, as the stream's options are now; None if it was dropped.

        Raises:
            SpannerCdcError: the database cannot be reached, or refuses the query.
            ValueError: the option has an unknown form.
        """
        options = (await change_stream_options(self.client)).get(self.stream.name)
        if options is None and self.stream.name not in await change_stream_names(self.client):
            return None
        period = (options or {}).get("retention_period")
        return RetentionPeriod(parse_duration(period or DEFAULT_RETENTION), is_default=period is None)

    @property
    def placements(self) -> tuple[str, ...] | None:
        """The placements that are read, () for all; None if the stream has one read function alone."""
        return None if self.functions is None else self.config.placements or ()

    def resolve(self, text: str) -> int:
        """A configured timestamp, ``now`` or an offset by Spanner's clock; Unix nanoseconds."""
        return resolve_timestamp(text, self.now)

    def end(self, *, until_now: bool = False) -> int | None:
        """The end of reading, inclusive; None if it does not end.

        With ``until_now`` it is Spanner's clock, unless the configured end is before that.
        """
        ends = [] if self.config.end is None else [self.resolve(self.config.end)]
        return min([*ends, self.now] if until_now else ends, default=None)

    async def check_start(self, start: int, end: int | None) -> None:
        """Checks that the stream can be read from ``start``, by an initial query that ends where it starts.

        Raises:
            ConfigurationError: the start is in the future, or after the end.
            BeforeStreamError: the start is before the stream existed.
            DataLostError: the start is before the retention.
            SpannerCdcError: the stream cannot be read at all.
        """
        if start > self.now:
            now = format_rfc3339(self.now)
            raise ConfigurationError(
                [f"source.start: {format_rfc3339(start)} is in the future; Spanner's clock is at {now}"]
            )
        if end is not None and end < start:
            raise ConfigurationError(
                [f"source.end: {format_rfc3339(end)} is before source.start {format_rfc3339(start)}"]
            )
        try:
            await self.probe(start)
        except DataLostError as error:
            if start > self.now - self.retention.period:
                why = (
                    f"source.start: {format_rfc3339(start)} is within the retention period of"
                    f" {self.stream.retention}, but change stream {self.stream.name} or its database"
                    f" did not exist then ({error.args[0]})"
                )
                raise BeforeStreamError([why]) from error.__cause__
            raise

    async def probe(self, start: int) -> None:
        """Checks that Spanner still retains what was committed from ``start`` on.

        Raises:
            DataLostError: it is no longer retained.
            UnreachableError: Spanner has not said it for a while: what does not answer has accepted nothing.
            SpannerCdcError: the stream cannot be read at all.
        """
        if self.functions is None:
            await self._probe(INITIAL_TOKEN, start)
            return
        refused = list[DataLostError]()
        for function in self.functions.names:  # one may be younger than the start, and others accept it
            try:
                await self._probe(partition_id(INITIAL_TOKEN, function), start)
            except DataLostError as error:
                refused.append(error)
        if refused and len(refused) == len(self.functions.names):
            raise refused[0]

    async def _probe(self, token: str, start: int) -> None:
        await _answered(lambda timeouts: self._probe_once(token, start, timeouts))

    async def _probe_once(self, token: str, start: int, timeouts: int) -> None:
        unanswered = no_answer_hint(self.client.access.section, self.client.proxy)
        try:
            async with aclosing(self.queries().read(PartitionQuery(token, start, start, timeouts))) as messages:
                await anext(messages, None)
        except SilentStreamError as error:
            what = f"cannot read change stream {self.stream.name}, {partition_name(token)}: {error}"
            raise UnreachableError(what, hint=unanswered) from error
        except UnknownRecordError as error:
            raise unreadable(self.stream.name, partition_name(token), error) from error
        except grpc.RpcError as error:
            found = classify(error)
            refused = query_error(found, stream=self.stream.name, token=token, start=start)
            cause = error.with_traceback(None)  # gRPC's frames explain nothing, and would be 50 lines
            if found.action is CallAction.STOP:
                raise refused from cause
            raise UnreachableError(refused.args[0], hint=refused.hint or unanswered) from cause

    async def range_from(self, start: int, end: int | None, *, was_read: bool = False) -> Range:
        """The range from a start, inclusive, to an end.

        Args:
            start: Unix nanoseconds.
            end: inclusive, or None.
            was_read: whether it was read before, so that a placement that is gone is a warning alone.

        Raises:
            PlacementLostError: a placement that is to be read was dropped.
            SpannerCdcError: the read functions cannot be listed.
        """
        initial = (CutPartition(INITIAL_TOKEN, start),)
        return Range(await self.completed(initial, start - 1, end=end, only_warns=was_read), start - 1, end)

    async def completed(
        self, cut: tuple[CutPartition, ...], watermark: int, *, end: int | None = None, only_warns: bool = False
    ) -> tuple[CutPartition, ...]:
        """A cut at a watermark, with a partition of each read function of a placement.

        Args as of :meth:`StreamFunctions.completed`.

        Raises:
            ConfigurationError: the cut is from a time when the stream had no functions of placements.
            PlacementLostError: a placement that is to be read was dropped.
            SpannerCdcError: the read functions cannot be listed.
        """
        if self.functions is None:
            return cut
        return await self.functions.completed(cut, watermark, end=end, only_warns=only_warns)

    def window_functions(self) -> WindowFunctions | None:
        """Completes the cuts of windows; None for a stream with one read function alone."""
        if self.functions is None:
            return None
        functions = self.functions
        starts = FirstStarts(
            self.stream.name, self.queries(), partial(current_timestamp, self.client), lambda: functions.names
        )
        return WindowFunctions(functions, starts)

    def key_order(self) -> KeyOrder:
        """Finds the key order of tables that the stream names first."""
        return KeyOrder(
            lambda: primary_keys(self.client, self.dialect), self.filter, role=self.config.database_role or ""
        )

    @property
    def address(self) -> StreamAddress:
        """The stream, for other processes."""
        return StreamAddress(
            self.client.address,
            self.client.rpc_priority,
            self.dialect.name,
            self.stream.name,
            self.stream.partition_mode,
            self.config.heartbeat,
        )

    def queries(self) -> PartitionQueries:
        """The stream's queries."""
        return self.address.queries(self.client)

    @property
    def workers(self) -> int:
        """The number of processes that read it; 1 means this process.

        By default one for two cores, because the coordinator and the sink need some too, and 1 for an emulator.
        """
        if self.config.workers is not None:
            return self.config.workers
        if self.client.address.emulator_host is not None:
            return 1
        return max(1, min(cores() // 2, MOST_BY_DEFAULT))

    @asynccontextmanager
    async def scheduler(
        self,
        span: Range,
        sink: SealedEpochSink,
        *,
        seal_interval: int,
        metrics: ReaderMetrics,
        late_records: DeadLetterStore | None = None,
    ) -> AsyncIterator[Scheduler]:
        """A reader of the range into the sink, with its workers; ``late_records`` as of :class:`Scheduler`.

        Raises:
            SpannerCdcError: a worker cannot be started.
        """
        async with self._read_in_workers(metrics) as queries:
            clock = partial(current_timestamp, self.client)
            queried = QueriedStream(
                self.stream.name,
                queries,
                SpannerClock(clock, self.now),
                self.config.heartbeat,
                WINDOW if self.stream.partition_mode == MUTABLE else None,
                of_some_placements=bool(self.placements),
            )
            if self.functions is not None:
                watch = FunctionsWatch(self.functions.lister, self.functions.listed, self.config.heartbeat)
                starts = FirstStarts(self.stream.name, queries, clock, lambda: watch.functions)
                queried = replace(queried, functions=watch, first_starts=starts)
            yield Scheduler(
                queried,
                span,
                sink,
                seal_interval=seal_interval,
                flow=FlowControl(),
                metrics=metrics,
                late_records=late_records,
            )

    @asynccontextmanager
    async def _read_in_workers(self, metrics: ReaderMetrics) -> AsyncIterator[SendsQueries]:
        """The stream's queries, in worker processes if there are to be several."""
        if self.workers == 1:
            yield self.queries()
            return
        as_json, verbose = style()
        async with Workers(WorkerSetup(self.address, as_json, verbose), self.workers, metrics).running() as workers:
            yield workers


async def _answered(ask: Callable[[int], Awaitable[None]]) -> None:
    """Asks until there is an answer, or Spanner has not answered for a while.

    A silent Spanner is given more time, as in reading: if its first message takes longer than the first timeout, no
    start would ever succeed.

    Args:
        ask: asks once; its argument is how many attempts before it timed out.

    Raises:
        UnreachableError: there is no answer.
    """
    silent = 0

    async def once() -> None:
        nonlocal silent
        try:
            await ask(silent)
        except UnreachableError as error:
            if isinstance(error.__cause__, SilentStreamError):
                silent += 1
                _log.warning("the start is not answered", why=error.message, attempt=silent, of=_SILENT_PROBES)
            raise

    def gives_up(state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is not None and isinstance(error.__cause__, SilentStreamError):
            return silent >= _SILENT_PROBES
        return (state.seconds_since_start or 0.0) >= SETUP_TIMEOUT

    wait = wait_random_exponential(multiplier=0.1, max=2)
    retrying = AsyncRetrying(retry=retry_if_exception_type(UnreachableError), stop=gives_up, wait=wait, reraise=True)
    await retrying(once)


@asynccontextmanager
async def opened(config: SourceConfig, *, started: bool = False) -> AsyncIterator[OpenStream]:
    """Connects, and finds the change stream and what it watches.

    Args:
        config: the change stream.
        started: whether a spool has epochs of it. A table pattern that matches no watched table is then not an error,
            because the table was dropped, and the others are read. Without epochs it is likely a typing error, unless
            a database role is used: it may not see the table.

    Raises:
        ConfigurationError: there is no such stream, or a table pattern matches no watched table; all errors at once.
        SpannerCdcError: Spanner cannot be reached, or refuses a call.
    """
    client = SpannerClient(config.address, config.rpc_priority)
    async with client.connected():
        dialect = await dialect_of(client)
        stream = await find_change_stream(client, dialect, config.change_stream)
        chosen = RecordFilter(config.tables.include, config.tables.exclude, config.skip_transaction_tags)
        unmatched = tuple(chosen.unmatched(table.table for table in stream.tables))
        errors = [
            f"source.tables.{'include' if pattern in config.tables.include else 'exclude'}: {pattern!r} matches no"
            f" table that change stream {stream.name} watches"
            for pattern in unmatched
            if not started and not config.database_role
        ]
        if stream.partition_mode not in (IMMUTABLE, MUTABLE):
            errors.append(
                f"source.change_stream: {stream.name} has partition mode {stream.partition_mode},"
                " which this version does not support"
            )
        rules = config.columns.rules
        unmatched_columns: tuple[str, ...] = ()
        if rules is not None:
            unmatched_columns = tuple(rules.unmatched(stream.tables))
            if not started and not config.database_role:
                errors += [
                    f"{one} matches no column that change stream {stream.name} watches" for one in unmatched_columns
                ]
            errors += _errors_of_columns(rules, stream.tables, config)
        if errors:
            raise ConfigurationError(errors)
        if rules is not None:
            stream = replace(stream, tables=tuple(map(rules.schema, stream.tables)))
        lister = lister_of(client, dialect, stream, config.placements)
        functions = None
        if lister is not None:
            functions = StreamFunctions(lister, await (lister.settled() if started else lister.first()))
        source = Source(
            config.project,
            config.instance,
            config.database,
            config.change_stream,
            dialect.default_schema or config.database,
        )
        now = await current_timestamp(client)
        yield OpenStream(client, config, dialect, stream, source, chosen, now, unmatched, functions, unmatched_columns)


async def reconfigured(stream: OpenStream, config: SourceConfig) -> OpenStream:
    """The same stream with other options: tables, transaction tags, heartbeat, workers, late records.

    The tables that it watches are listed again, if Spanner answers: some may have been added since it was opened.

    Args:
        stream: as it was opened.
        config: the other options; those that a connection depends on are the same.
    """
    found, rules = stream.stream, config.columns.rules
    with suppress(SpannerCdcError):
        listed = await find_change_stream(stream.client, stream.dialect, config.change_stream)
        tables = listed.tables if rules is None else tuple(map(rules.schema, listed.tables))
        found = replace(found, tables=tables)
    chosen = RecordFilter(config.tables.include, config.tables.exclude, config.skip_transaction_tags)
    return replace(
        stream,
        config=config,
        stream=found,
        filter=chosen,
        unmatched=tuple(chosen.unmatched(table.table for table in found.tables)),
    )


def _errors_of_columns(rules: ColumnRules, tables: Iterable[TableSchema], config: SourceConfig) -> list[str]:
    """The rules for columns that cannot be: those that tables contradict, or that leave nothing to look rows up by."""
    errors = rules.errors(tables)
    if config.complete_rows:
        errors += [
            f"source.complete_rows: rows of table {table.table} cannot be looked up, because {HASH} hashes"
            f" {table.table}.{hashed}, a column of the key"
            for table in tables
            if (hashed := rules.hashed_key(table.table, table.primary_keys))
        ]
    return errors
