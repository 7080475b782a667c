"""An opened change stream: how many workers read it, and which range is reported lost once it is not retained."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from dataclasses import replace

import grpc
import pytest

from connector.config import SourceConfig
from connector.config.address import DatabaseAddress
from connector.core.dialects import GOOGLESQL
from connector.core.filters import RecordFilter
from connector.core.health.states import RetentionPeriod
from connector.core.timestamps import SECOND, parse
from connector.envelope.envelope import Source
from connector.errors import DataLostError, UnreachableError
from connector.reader import change_stream as reader
from connector.reader import starting
from connector.reader.change_stream import OpenStream
from connector.reader.starting import lost_range, start_of
from connector.spanner.client import SpannerClient
from connector.spanner.decoding.decoder import Item
from connector.spanner.discovery import ChangeStream
from connector.spanner.partition_query import PartitionQuery, SilentStreamError
from tests.connector.builders import address_of

WATERMARK = parse("2026-01-02T00:00:00Z")
STREAM = OpenStream(
    SpannerClient(address_of("projects/p/instances/i/databases/d")),
    SourceConfig(project="p", instance="in", database="d", change_stream="s"),
    GOOGLESQL,
    ChangeStream("s", "7d", "NEW_ROW", "IMMUTABLE_KEY_RANGE", ()),
    Source("p", "i", "d", "s", "d"),
    RecordFilter((), (), ()),
    parse("2026-01-11T00:00:00Z"),
)
ERROR = "the data is no longer retained: change stream s, partition x (OUT_OF_RANGE: too far in the past)"


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 1), (3, 1), (4, 2), (7, 3), (8, 4), (64, 4)])
def test_one_worker_for_two_cores_and_at_most_four(cores: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "cores", lambda: cores)
    assert STREAM.workers == workers
    assert (
        replace(STREAM, client=SpannerClient(DatabaseAddress("p", "i", "d", emulator_host="localhost:1"))).workers == 1
    )
    assert replace(STREAM, config=STREAM.config.model_copy(update={"workers": 7})).workers == 7


@pytest.mark.parametrize(
    ("configured", "end", "until_now"),
    [
        (None, None, "2026-01-11T00:00:00Z"),
        ("now", "2026-01-11T00:00:00Z", "2026-01-11T00:00:00Z"),
        ("-1h", "2026-01-10T23:00:00Z", "2026-01-10T23:00:00Z"),
        ("2026-01-12T00:00:00Z", "2026-01-12T00:00:00Z", "2026-01-11T00:00:00Z"),
    ],
)
def test_reading_until_now_ends_with_spanners_clock_or_an_earlier_end(
    configured: str | None, end: str | None, until_now: str
) -> None:
    stream = replace(STREAM, config=STREAM.config.model_copy(update={"end": configured}))
    assert stream.end() == (parse(end) if end else None)
    assert stream.end(until_now=True) == parse(until_now)


@pytest.mark.parametrize(
    ("options", "period"),
    [
        ([["s", "retention_period", "36h"], ["other", "retention_period", "1d"]], RetentionPeriod(36 * 3600 * SECOND)),
        ([["other", "retention_period", "1d"]], RetentionPeriod(7 * 86_400 * SECOND, is_default=True)),
        ([["dropped", "retention_period", "1d"]], None),
    ],
)
def test_the_retention_period_of_now_is_the_altered_one_or_spanners_default_and_unknown_of_a_dropped_stream(
    options: list[list[object]], period: RetentionPeriod | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rows(_: SpannerClient, sql: str) -> list[list[object]]:
        if sql.endswith("change_stream_options"):
            return options
        return [["other"], ["s" if period else "another"]]

    monkeypatch.setattr(SpannerClient, "rows", rows)
    assert asyncio.run(STREAM.retention_now()) == period


def reported(stream: OpenStream = STREAM, earliest: str | None = None, spool: str = "/data/spool") -> DataLostError:
    error = DataLostError(ERROR, hint="of no use", earliest=parse(earliest) if earliest else None)
    return asyncio.run(lost_range(stream, error, WATERMARK, spool=spool))


def clock_is(monkeypatch: pytest.MonkeyPatch, timestamp: str | None) -> None:
    async def clock(_: SpannerClient) -> int:
        if timestamp is None:
            raise UnreachableError("no answer")
        return parse(timestamp)

    monkeypatch.setattr(starting, "current_timestamp", clock)


def retained_from(monkeypatch: pytest.MonkeyPatch, first: str | None) -> None:
    async def probe(_: OpenStream, start: int) -> None:
        if first is None:
            raise UnreachableError("no answer")
        if start < parse(first):
            raise DataLostError(ERROR)

    monkeypatch.setattr(OpenStream, "probe", probe)


def test_the_lost_range_ends_where_spanner_says_that_its_records_start() -> None:
    error = reported(earliest="2026-01-05T01:02:03.000000004Z")
    assert str(error) == (
        "what was committed after 2026-01-02T00:00:00.000000Z and before 2026-01-05T01:02:03.000000004Z is lost: "
        f"{ERROR}. Nothing was skipped. To continue without it, leaving a record of the gap:"
        " spanner-cdc spool /data/spool --restart-at TIMESTAMP, some minutes after that."
    )
    assert error.exit_code == 3


def test_where_the_error_does_not_say_it_spanner_is_asked_whatever_the_retention_period_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock_is(monkeypatch, "2026-01-12T00:00:00Z")
    retained_from(monkeypatch, "2026-01-10T01:02:03.456789Z")
    assert "and before 2026-01-10T01:02:03.456789" in str(reported())


def test_where_spanner_does_not_say_it_ends_about_the_retention_period_before_its_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock_is(monkeypatch, "2026-01-12T00:00:00Z")
    retained_from(monkeypatch, None)
    assert "and before about 2026-01-05T00:00:00.000000Z is lost" in str(reported())


def test_where_spanners_clock_cannot_be_requested_the_clock_at_opening_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_is(monkeypatch, None)
    retained_from(monkeypatch, None)
    assert "and before about 2026-01-04T00:00:00.000000Z is lost" in str(reported())


def test_a_lost_range_never_ends_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_is(monkeypatch, "2026-01-12T00:00:00Z")
    retained_from(monkeypatch, None)
    month = replace(STREAM, stream=replace(STREAM.stream, retention_period="30d"))
    assert "after 2026-01-02T00:00:00.000000Z is lost, up to when Spanner does not say: " in str(reported(month))


def test_the_command_to_continue_can_be_pasted_whatever_the_path_of_the_spool() -> None:
    assert "spanner-cdc spool './my spool' --restart-at" in str(
        reported(earliest="2026-01-05T00:00:00Z", spool="./my spool")
    )


def test_a_stream_that_watches_no_table_is_warned_of_and_one_that_a_role_does_not_see_by_the_role(
    caplog: pytest.LogCaptureFixture,
) -> None:
    STREAM.warn_of_tables()
    replace(STREAM, config=STREAM.config.model_copy(update={"database_role": "reader"})).warn_of_tables()
    nothing, unseen = (record.getMessage() for record in caplog.records)
    assert "watches no table" in nothing
    assert "the database role sees no table" in unseen


class YoungServer:
    """A server whose change stream exists since five minutes, and that does not answer some of the queries."""

    created = STREAM.now - 300 * SECOND

    def __init__(self, unanswered: Collection[int], error: Exception) -> None:
        self._unanswered = unanswered
        self._error = error
        self.asked = 0

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        self.asked += 1
        if self.asked in self._unanswered:
            raise self._error
        if query.start < self.created:
            raise _error(grpc.StatusCode.OUT_OF_RANGE, "Specified start_timestamp is too far in the past.")
        for nothing in list[list[Item]]():
            yield nothing


def _error(code: grpc.StatusCode, message: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), message)


UNAVAILABLE = _error(grpc.StatusCode.UNAVAILABLE, "connection reset")


@pytest.mark.parametrize("unanswered", [1, 2, 5, 12, 20, 29])
@pytest.mark.parametrize("error", [UNAVAILABLE, SilentStreamError("no message for 5 s")])
def test_a_start_that_was_not_answered_is_not_taken_for_one_that_is_accepted(
    unanswered: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = YoungServer({unanswered}, error)
    monkeypatch.setattr(OpenStream, "queries", lambda _: server)
    start = asyncio.run(start_of(STREAM, "-15m", None))
    assert server.asked > unanswered
    assert server.created <= start <= server.created + 1000


class SlowServer(YoungServer):
    """The same, whose first message takes longer than a timeout that has not grown ``needed`` times."""

    def __init__(self, needed: int) -> None:
        super().__init__((), UNAVAILABLE)
        self._needed = needed
        self.timeouts = list[int]()

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        self.timeouts.append(query.timeouts)
        if query.timeouts < self._needed:
            raise SilentStreamError("no message for 30 s")
        async for items in super().read(query):
            yield items


def test_a_start_waits_longer_each_time_for_the_first_message_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    for needed in (2, 100):
        server = SlowServer(needed)
        monkeypatch.setattr(OpenStream, "queries", lambda _, server=server: server)
        probing = STREAM.probe(SlowServer.created)
        if needed == 100:
            with pytest.raises(UnreachableError, match="no message for 30 s"):
                asyncio.run(probing)
        else:
            asyncio.run(probing)
        assert server.timeouts == [0, 1, 2]


def test_a_server_that_never_answers_decides_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenStream, "queries", lambda _: YoungServer(range(1, 1000), UNAVAILABLE))
    monkeypatch.setattr(reader, "SETUP_TIMEOUT", 0.0)
    with pytest.raises(UnreachableError, match="connection reset") as raised:
        asyncio.run(start_of(STREAM, "-15m", None))
    assert raised.value.exit_code == 1, "a restart asks again"
