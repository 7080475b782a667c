import asyncio
import datetime as dt
import time
from contextlib import suppress
from dataclasses import replace

import grpc
import pytest
from google.api_core.exceptions import InvalidArgument, NotFound
from google.cloud.spanner_v1 import param_types, types

from connector.core.records import INITIAL_TOKEN, Record
from connector.core.timestamps import SECOND
from connector.spanner.client import STRING, Parameter, SpannerClient
from connector.spanner.decoding.decoder import decoder
from connector.spanner.discovery import current_timestamp, dialect_of, find_change_stream
from connector.spanner.partition_query import PartitionQueries, PartitionQuery
from emulator import Fault, FaultKind, FaultPlan, Framing, ScriptedServer, connect
from emulator.official.connection import answers
from emulator.scenario.history import Event, History, Partition, PartitionMode
from emulator.workload.tables import Dialect
from tests.connector.builders import address_of
from tests.emulator.scripted.raw_client import RawClient, connected
from tests.emulator.scripted.scripted_stream import (
    FORMS,
    MODS,
    ORIGIN,
    Asked,
    ask,
    at,
    change,
    engine,
    loose,
    scenario,
    shown,
)
from tests.property.virtual_time import run

_ResultSet = types.ResultSet.pb()
_LATE = at(30)


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
@pytest.mark.parametrize("framing", [None, Framing(3, rows=3, chunked=1.0, tokens=0.5, bare=0.1)], ids=["plain", "cut"])
def test_the_connector_reads_what_the_engine_sends(
    dialect: Dialect, mode: PartitionMode, framing: Framing | None
) -> None:
    script = scenario(dialect, mode)
    with ScriptedServer.started(script, begins=_LATE, framing=framing) as server:
        found = asyncio.run(_read_with_connector(server, ["left", "right"]))
    assert found == {
        INITIAL_TOKEN: run(ask(engine(script, now=30), None, 0, 29)).shown,
        **{token: run(ask(engine(script, now=30), token, 0, 29)).shown for token in ("left", "right")},
    }


async def _read_with_connector(server: ScriptedServer, tokens: list[str]) -> dict[str, list[str]]:
    async with SpannerClient(address_of(server.database, server.host)).connected() as client:
        dialect = await dialect_of(client)
        assert await current_timestamp(client) >= _LATE
        stream = await find_change_stream(client, dialect, "Everything")
        assert {table.table for table in stream.tables} >= {"Singers", "Order", "sales.Invoices"}
        queries = PartitionQueries(
            client,
            dialect,
            stream.name,
            stream.partition_mode,
            heartbeat=SECOND,
            decoder=decoder(dialect, stream.partition_mode),
            clock=time.time_ns,
        )
        found: dict[str, list[Record]] = {}
        for token in (INITIAL_TOKEN, *tokens):
            query = PartitionQuery(token, ORIGIN, at(29))
            found[token] = loose([item async for items in queries.read(query) for item in items])
    return {token: [shown(record) for record in records] for token, records in found.items()}


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_google_cloud_spanner_reads_the_schema_and_the_stream(dialect: Dialect, mode: PartitionMode) -> None:
    script = scenario(dialect, mode)
    framing = Framing(3, rows=3, chunked=1.0, tokens=0.5)
    with ScriptedServer.started(script, begins=_LATE, framing=framing) as server:
        database = connect(server.host, script.project).instance(script.instance).database(script.database)
        with database.snapshot() as snapshot:
            (found,) = snapshot.execute_sql("SELECT change_stream_name FROM information_schema.change_streams")
            assert found == ["Everything"]
        sql, names = {
            "googlesql": ("SELECT ChangeRecord FROM READ_Everything(@p1, @p2, @p3, @p4)", "p1 p2 p3 p4"),
            "postgresql": (
                'SELECT * FROM "spanner"."read_{}_Everything"($1, $2, $3, $4, null)'.format(
                    "json" if mode == "IMMUTABLE_KEY_RANGE" else "proto_bytes"
                ),
                "p1 p2 p3 p4",
            ),
        }[dialect]
        instant = dt.datetime.fromtimestamp(ORIGIN // SECOND + 1, dt.UTC)
        values = (instant, instant + dt.timedelta(seconds=28), "left", 1000)
        types_ = (param_types.TIMESTAMP, param_types.TIMESTAMP, param_types.STRING, param_types.INT64)
        with database.snapshot() as snapshot:
            rows = snapshot.execute_sql(
                sql,
                params=dict(zip(names.split(), values, strict=True)),
                param_types=dict(zip(names.split(), types_, strict=True)),
            )
            assert len(list(rows)) == (5 if mode == "IMMUTABLE_KEY_RANGE" else 7)
        unknown = "Table not found: nowhere" if dialect == "googlesql" else 'relation "nowhere" does not exist'
        with database.snapshot() as snapshot, pytest.raises((InvalidArgument, NotFound), match=unknown):
            list(snapshot.execute_sql("SELECT * FROM nowhere"))


def test_it_answers_the_readiness_check_of_an_emulator() -> None:
    with ScriptedServer.started(scenario()) as server:
        assert answers(server.host, seconds=60)


def test_its_time_starts_where_requested_and_runs_at_the_requested_speed() -> None:
    with ScriptedServer.started(scenario()) as server:
        assert at(0) <= server.now < at(30)
    with ScriptedServer.started(scenario(), begins=_LATE, speed=1e6) as server:
        started_at, instant = time.monotonic(), server.now
        assert instant >= _LATE
        while server.now < instant + 3600 * SECOND:
            assert time.monotonic() < started_at + 300


def test_live_records_are_sent_as_the_clock_reaches_them() -> None:
    with ScriptedServer.started(scenario(), begins=at(3), speed=20) as server, connected(server) as client:
        count, code, _ = client.read("left")
        assert count > 5  # heartbeats came too
        assert code is grpc.StatusCode.OK
        assert server.now >= at(20)
        assert server.engine.queries == {"left": 1}


@pytest.mark.parametrize(
    ("kind", "code", "details"),
    [
        (FaultKind.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, "unavailable"),
        (FaultKind.ABORTED, grpc.StatusCode.ABORTED, "aborted"),
        (FaultKind.RESOURCE_EXHAUSTED, grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded"),
        (FaultKind.DEADLINE_EXCEEDED, grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
        (FaultKind.INTERNAL, grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2"),
        (FaultKind.CANCELLED, grpc.StatusCode.CANCELLED, "cancelled"),
        (FaultKind.EXPIRED_START, grpc.StatusCode.OUT_OF_RANGE, "too far in the past"),
        (FaultKind.EXPIRED_PARTITION, grpc.StatusCode.OUT_OF_RANGE, "This partition is no longer valid"),
        (FaultKind.BREAK_BETWEEN_CHILDREN, grpc.StatusCode.UNAVAILABLE, "Stream removed"),
        (FaultKind.CLEAN_END, grpc.StatusCode.OK, ""),
    ],
)
def test_a_fault_reaches_the_client_after_its_messages(kind: FaultKind, code: grpc.StatusCode, details: str) -> None:
    plan = FaultPlan().rule(Fault(kind, after=2), token="left")
    with ScriptedServer.started(scenario(), begins=_LATE, faults=plan) as server, connected(server) as client:
        count, got, text = client.read("left")
        assert (count, got) == (4 if kind is FaultKind.BREAK_BETWEEN_CHILDREN else 2, code)
        assert details in text
        assert client.read("left")[:2] == (5, grpc.StatusCode.OK)
        assert plan.struck == {kind.value: 1}


def test_silence_leaves_the_query_open() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.SILENCE, after=1))
    with ScriptedServer.started(scenario(), begins=_LATE, faults=plan) as server, connected(server) as client:
        call = client.stream(client.query("left"))
        next(call)
        assert client.read("left")[:2] == (5, grpc.StatusCode.OK)  # others go on
        assert call.is_active()
        assert server.engine.open == 1
        call.cancel()


def test_an_expired_session_is_not_found_until_a_new_one_is_created() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.SESSION_EXPIRED, after=1), token="left")
    with ScriptedServer.started(scenario(), begins=_LATE, faults=plan) as server, connected(server) as client:
        expired = client.session
        for count in (1, 0):
            assert client.read("left") == (count, grpc.StatusCode.NOT_FOUND, f"Session not found: {expired}")
        client.session = client.create_session(server.database)
        assert client.session != expired
        assert client.read("left")[:2] == (5, grpc.StatusCode.OK)


def test_a_reset_closes_one_connection_and_no_other() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.CONNECTION_RESET, after=1), token="left")
    with ScriptedServer.started(scenario(), begins=_LATE, faults=plan) as server:
        with connected(server) as client, connected(server) as other:
            beside, elsewhere = client.stream(client.query("right")), other.stream(other.query("right"))
            next(beside)
            next(elsewhere)
            count, code, details = client.read("left")
            assert count <= 1  # what was on its way is lost with the connection
            assert code is grpc.StatusCode.UNAVAILABLE
            assert any(words in details.lower() for words in ("reset", "closed", "broken pipe"))
            with pytest.raises(grpc.RpcError) as broken:
                list(beside)
            assert broken.value.code() is grpc.StatusCode.UNAVAILABLE
            assert elsewhere.is_active()
            deadline = time.monotonic() + 300  # gRPC may need several attempts for a new connection
            while (again := client.read("left"))[1] is grpc.StatusCode.UNAVAILABLE and time.monotonic() < deadline:
                time.sleep(0.05)
            assert again[:2] == (5, grpc.StatusCode.OK)
            elsewhere.cancel()
        assert server.resets == 1
        assert plan.struck == {"connection reset": 1}


def test_queries_beyond_a_connections_limit_wait() -> None:
    limited = ScriptedServer.started(scenario(), begins=_LATE, max_streams_per_connection=3)
    with limited as server, connected(server) as client, connected(server) as other:
        calls = [client.stream(client.query("right")) for _ in range(3)]
        for call in calls:
            next(call)
        waiting = client.stream(client.query("left", start=20))
        assert other.read("left")[:2] == (5, grpc.StatusCode.OK)
        assert server.engine.queries["left"] == 1
        calls[0].cancel()
        assert len(list(waiting)) == 2
        assert server.engine.most_open == 4
        for call in calls:
            call.cancel()


def test_backpressure_pauses_the_query_of_a_reader_that_does_not_read() -> None:
    large = replace(change(1), mods=MODS * 50)
    events: list[Event] = [replace(large, commit_timestamp=at(1) + number) for number in range(3000)]
    history = History("IMMUTABLE_KEY_RANGE", ORIGIN, at(2), {"one": Partition("one", ORIGIN, events=events)})
    script = replace(scenario(), history=history)
    with ScriptedServer.started(script, begins=_LATE) as server, connected(server) as client:
        held = client.stream(client.query("one", end=29))
        next(held)
        assert client.read(None)[1] is grpc.StatusCode.OK
        assert server.engine.messages < 3000
        assert len(list(held)) == 2999


def _refused(client: RawClient, request: types.ExecuteSqlRequest) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        list(client.stream(request))
    return refused.value.code(), refused.value.details()


def test_a_change_stream_accepts_only_strong_single_use_streaming_reads() -> None:
    with ScriptedServer.started(scenario(), begins=_LATE) as server, connected(server) as client:
        stale = client.query("left")
        stale.transaction.single_use.read_only.return_read_timestamp = True
        stale.transaction.single_use.read_only.exact_staleness.seconds = 1
        assert _refused(client, stale)[0] is grpc.StatusCode.INVALID_ARGUMENT
        resumed = client.query("left")
        resumed.resume_token = b"x"
        assert "resume_token" in _refused(client, resumed)[1]
        with pytest.raises(grpc.RpcError, match="not supported for the ExecuteSql API"):
            client.call("ExecuteSql", client.query("left").SerializeToString())


def test_metadata_is_answered_at_once_too() -> None:
    with ScriptedServer.started(scenario()) as server, connected(server) as client:
        request = client.request("SELECT table_name FROM information_schema.tables WHERE parent_table_name IS NOT NULL")
        answer = _ResultSet.FromString(client.call("ExecuteSql", request.SerializeToString()))
        assert [row.values[0].string_value for row in answer.rows] == ["Albums"]
        assert answer.metadata.row_type.fields[0].name == "TABLE_NAME"
        assert server.engine.statements == 1


def test_missing_resources_are_not_found() -> None:
    with ScriptedServer.started(scenario()) as server, connected(server) as client:
        for database, message in (
            (f"{server.database}x", f"Database not found: {server.database}x"),
            ("projects/p/instances/ii/databases/d", "Instance not found: projects/p/instances/ii"),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                client.create_session(database)
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
            assert refused.value.details() == message
        client.session = f"{server.database}/sessions/never"
        assert client.read()[1:] == (grpc.StatusCode.NOT_FOUND, f"Session not found: {client.session}")
        with pytest.raises(grpc.RpcError) as unknown:
            client.call("Rollback", b"")
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_sessions_can_be_looked_up_and_deleted() -> None:
    names = types.GetSessionRequest.pb(), types.DeleteSessionRequest.pb()
    with ScriptedServer.started(scenario()) as server, connected(server) as client:
        batch = types.BatchCreateSessionsRequest.pb()(database=server.database, session_count=2)
        made = types.BatchCreateSessionsResponse.pb().FromString(
            client.call("BatchCreateSessions", batch.SerializeToString())
        )
        assert len({session.name for session in made.session} | {client.session}) == 3
        lookup = names[0](name=client.session).SerializeToString()
        assert types.Session.pb().FromString(client.call("GetSession", lookup)).name == client.session
        client.call("DeleteSession", names[1](name=client.session).SerializeToString())
        with pytest.raises(grpc.RpcError, match="Session not found"):
            client.call("GetSession", lookup)


def test_it_ends_while_queries_are_open() -> None:
    with ScriptedServer.started(scenario(), begins=_LATE, faults=FaultPlan(1)) as server:
        client = RawClient(server)
        calls = [client.stream(client.query("right")) for _ in range(5)]
    for call in calls:
        with pytest.raises(grpc.RpcError):
            list(call)
    client.channel.close()


def test_it_can_be_served_in_the_loop_of_its_reader() -> None:
    async def main() -> dict[str, list[str]]:
        async with ScriptedServer.serving(scenario(), begins=_LATE) as server:
            return await _read_with_connector(server, ["right"])

    assert asyncio.run(main())["right"][0] == "change 2"


@pytest.mark.long
def test_thousands_of_simultaneous_queries_are_all_answered() -> None:
    async def main() -> int:
        async with (
            ScriptedServer.serving(scenario(), begins=_LATE) as server,
            SpannerClient(address_of(server.database, server.host)).connected() as client,
            asyncio.TaskGroup() as group,
        ):
            asked = Asked(server.engine.scenario, "left", 20)
            values = {name: Parameter(value, STRING) for name, value in asked.parameters.items()}

            async def read() -> int:
                for _ in range(9):
                    with suppress(grpc.aio.AioRpcError):  # gRPC cancels some calls of a machine that is very busy
                        return len([message async for message in client.stream(asked.sql, values)])
                return 0

            tasks = [group.create_task(read()) for _ in range(2_000)]
            return sum([await task for task in tasks])

    assert asyncio.run(main()) == 2_000 * 2
