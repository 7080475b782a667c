"""The official emulator and the scripted server answer clients alike, and reject the same calls."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import grpc
import pytest
from google.cloud.spanner_v1 import param_types

from connector.core.dialects import GOOGLESQL, IMMUTABLE, MUTABLE, POSTGRESQL
from connector.core.timestamps import SECOND, format_rfc3339
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import ChangeStream, change_streams, current_timestamp, dialect_of
from tests.connector.builders import address_of
from tests.emulator.caller import Asked
from tests.emulator.stream_reader import read_all
from tests.emulator.subjects import Subject, children_of
from tests.integration.delivered import canonical

NOT_FOUND, INVALID, OUT_OF_RANGE = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
)
Pair = tuple[Subject, Subject]


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """Returns the error of a rejected call."""
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return refused.value.code(), refused.value.details()


def test_a_session_is_created_found_and_deleted_and_then_not_found(subject: Subject) -> None:
    caller = subject.caller
    session = caller.create_session()
    assert session.startswith(f"{subject.sample.path}/sessions/")
    assert caller.get_session(session) == session
    assert caller.run("SELECT 1", session=session).code is grpc.StatusCode.OK
    caller.delete_session(session)
    unknown = NOT_FOUND, f"Session not found: {session}"
    assert refusal(lambda: caller.get_session(session)) == unknown
    answer = caller.run("SELECT 1", session=session)
    assert (answer.code, answer.details) == unknown
    caller.delete_session(session)  # which there is no harm in


def test_a_missing_database_or_instance_is_not_found(subject: Subject) -> None:
    caller, path = subject.caller, f"{subject.sample.path}x"
    assert refusal(lambda: caller.create_session(path)) == (NOT_FOUND, f"Database not found: {path}")
    elsewhere = path.replace("/instances/", "/instances/no-")
    instance = elsewhere.partition("/databases/")[0]
    assert refusal(lambda: caller.create_session(elsewhere)) == (NOT_FOUND, f"Instance not found: {instance}")
    assert refusal(lambda: caller.create_session("nonsense")) == (INVALID, "Invalid project uri: nonsense")


def test_the_servers_time_is_close_to_this_machines_and_does_not_decrease(subject: Subject) -> None:
    before = time.time_ns()
    moments = [subject.caller.now() for _ in range(3)]
    assert moments == sorted(moments)
    assert before - 5 * SECOND < moments[0] <= moments[-1] < time.time_ns() + 5 * SECOND


@pytest.mark.emulator
def test_simple_statements_have_the_same_metadata_on_both_servers(pair: Pair) -> None:
    for sql in (
        "SELECT 1",
        "SELECT CURRENT_TIMESTAMP",
        "SELECT change_stream_name FROM information_schema.change_streams",
    ):
        official, scripted = (subject.caller.run(sql).messages[0].metadata.row_type.fields for subject in pair)
        # GoogleSQL ignores the case
        assert [(field.name.lower(), field.type_.code) for field in official] == [
            (field.name.lower(), field.type_.code) for field in scripted
        ]


async def _discovered(subject: Subject) -> tuple[str, bool, list[ChangeStream]]:
    sample = subject.sample
    async with SpannerClient(address_of(sample.path, sample.host)).connected() as client:
        dialect = await dialect_of(client)
        timely = subject.end <= await current_timestamp(client)
        return dialect.name, timely, await change_streams(client, dialect)


@pytest.mark.emulator
def test_the_connector_discovers_the_same_change_stream_with_its_tables_columns_types_and_keys(pair: Pair) -> None:
    official, scripted = (asyncio.run(_discovered(subject)) for subject in pair)
    assert official == scripted
    assert official[:2] == (pair[0].sample.dialect, True)
    (stream,) = official[2]
    assert {table.table for table in stream.tables} == {table.name for table in pair[0].sample.tables}


@pytest.mark.emulator
def test_rows_of_a_change_stream_have_the_same_type(pair: Pair) -> None:
    official, scripted = (subject.caller.query(None, subject.start, subject.end).messages[0] for subject in pair)
    assert official.metadata == scripted.metadata
    assert official.metadata.row_type.fields


def test_google_cloud_spanner_reads_the_committed_mods(subject: Subject) -> None:
    with subject.sample.database.snapshot() as snapshot:
        (row,) = snapshot.execute_sql(
            "SELECT @p1" if subject.sample.dialect == "googlesql" else "SELECT $1",
            params={"p1": "x"},
            param_types={"p1": param_types.STRING},
        )
    assert row == ["x"]
    seen = Counter(
        (mod.commit_timestamp_ns, mod.table, mod.mod_type, canonical(mod.keys), canonical(mod.new_values))
        for mod in read_all(subject.sample, format_rfc3339(subject.start), format_rfc3339(subject.end))
    )
    committed = Counter(
        (
            mod.commit_timestamp_ns,
            mod.table,
            mod.mod_type,
            canonical(mod.keys),
            canonical(mod.row),
        )
        for mod in subject.committed
    )
    assert seen == committed


def _some_partition(subject: Subject) -> str:
    """Returns a partition that ended long ago."""
    return next(one.token for one in subject.read_partitions().values() if one.announced)


def _other_function(subject: Subject) -> str:
    return (POSTGRESQL if subject.sample.dialect == "googlesql" else GOOGLESQL).query("Everything", IMMUTABLE)


def _with_heartbeat(number: int) -> Callable[[Subject], Asked]:
    return lambda subject: Asked(None, subject.start, subject.end, number)


def _with_token(token: str) -> Callable[[Subject], Asked]:
    return lambda subject: Asked(token, subject.start, subject.end)


REFUSED: dict[str, tuple[Callable[[Subject], Asked], grpc.StatusCode, str]] = {
    "an end before the start": (
        lambda subject: Asked(None, subject.end, subject.start),
        INVALID,
        "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received start_timestamp: 20",
    ),
    "no start": (lambda subject: Asked(None, None, subject.end), INVALID, "start_timestamp must not be null."),
    "no heartbeat": (
        lambda subject: Asked(None, subject.start, subject.end, None),
        INVALID,
        "heartbeat_milliseconds must not be null.",
    ),
    **{
        f"a heartbeat of {number} ms": (
            _with_heartbeat(number),
            OUT_OF_RANGE,
            f"heartbeat_milliseconds must be within min 100 and max 300000. Received heartbeat_milliseconds: {number}.",
        )
        for number in (-5, 0, 99, 300_001)
    },
    **{
        f"the token {token!r}": (
            _with_token(token),
            INVALID,
            (
                "Specified partition_token is invalid, as it does not belong to the Change Stream associated with the"
                f" TVF. Received partition_token: {token}."
            ),
        )
        for token in ("", "nobodys")
    },
    "a start too old": (
        lambda _: Asked(None, "2001-01-01T00:00:00Z"),
        OUT_OF_RANGE,
        (
            "Specified start_timestamp is too far in the past. Please specify a start_timestamp within the earliest"
            " read timestamp: 20"
        ),
    ),
    "a start too old of a partition": (
        lambda subject: Asked(_some_partition(subject), "2001-01-01T00:00:00Z"),
        OUT_OF_RANGE,
        "Specified start_timestamp is too far in the past. Please specify a start_timestamp within the earliest read",
    ),
    "a start far in the future": (
        lambda _: Asked(None, time.time_ns() + 660 * SECOND),
        OUT_OF_RANGE,
        (
            "Specified start_timestamp is too far in the future. Please specify a start_timestamp within the earliest"
            " read timestamp: 20"
        ),
    ),
    "a start after the partition's life": (
        lambda subject: Asked(_some_partition(subject), subject.end, subject.end + SECOND),
        OUT_OF_RANGE,
        "Specified start_timestamp is invalid for the partition. Please specify a start_timestamp within 20",
    ),
    "no timestamp": (
        lambda _: Asked(None, "today"),
        grpc.StatusCode.FAILED_PRECONDITION,
        "Could not parse today as a TIMESTAMP.",
    ),
}


@pytest.mark.long(but=13)
@pytest.mark.emulator
@pytest.mark.parametrize("what", REFUSED)
def test_an_invalid_query_is_rejected_with_the_same_code_and_message(what: str, pair: Pair) -> None:
    asked, code, words = REFUSED[what]
    for subject in pair:
        answer = subject.caller.ask(asked(subject))
        assert (answer.code, answer.details[: len(words)]) == (code, words), subject.server
        assert not answer.messages


@pytest.mark.emulator
def test_a_child_can_be_queried_from_its_start_but_not_before(pair: Pair) -> None:
    for subject in pair:
        child = next(one for one in subject.read_partitions().values() if one.parents)
        early = subject.caller.query(child.token, child.start - 1, subject.end)
        assert early.code is OUT_OF_RANGE
        assert early.details.startswith(
            "Specified start_timestamp is invalid for the partition. Please specify a start_timestamp within 20"
        )
        assert subject.caller.query(child.token, child.start, child.start).code is grpc.StatusCode.OK


STATEMENTS: dict[str, dict[str, tuple[str, grpc.StatusCode, str]]] = {
    "googlesql": {
        "another stream's": (
            GOOGLESQL.query("Nope", IMMUTABLE),
            INVALID,
            "Table-valued function not found: READ_Nope [at 1:26]\n",
        ),
        "the other dialect's": (
            POSTGRESQL.query("Everything", IMMUTABLE),
            INVALID,
            "Syntax error: Unexpected string literal",
        ),
        "a function that is given read options": (
            GOOGLESQL.query("Everything", IMMUTABLE).replace("_milliseconds)", "_milliseconds, read_options => ['x'])"),
            grpc.StatusCode.UNIMPLEMENTED,
            "read_options must be null.",
        ),
        "a function with a parameter of another name": (
            GOOGLESQL.query("Everything", IMMUTABLE).replace("end_timestamp =>", "ends =>"),
            INVALID,
            "Named argument ends not found in signature for call to function",
        ),
        "a table that is not there": ("SELECT * FROM nowhere", INVALID, "Table not found: nowhere"),
    },
    "postgresql": {
        "another stream's": (
            POSTGRESQL.query("Nope", IMMUTABLE),
            NOT_FOUND,
            (
                "[ERROR] function spanner.read_json_Nope(timestamp with time zone, timestamp with time zone, text,"
                " bigint, unknown) does not exist\n"
            ),
        ),
        "the other dialect's": (GOOGLESQL.query("Everything", IMMUTABLE), INVALID, "[ERROR] "),
        "the other partition mode's": (
            POSTGRESQL.query("Everything", MUTABLE),
            NOT_FOUND,
            "[ERROR] function spanner.read_proto_bytes_Everything(timestamp with time zone, timestamp with time zone,",
        ),
        "a table that is not there": ("SELECT * FROM nowhere", NOT_FOUND, 'relation "nowhere" does not exist'),
    },
}


@pytest.mark.emulator
def test_an_invalid_statement_is_rejected_with_the_same_code_and_message(pair: Pair) -> None:
    for subject in pair:
        for sql, code, words in STATEMENTS[subject.sample.dialect].values():
            answer = subject.caller.ask(Asked(None, subject.start, subject.end, sql=sql))
            assert (answer.code, answer.details[: len(words)]) == (code, words), subject.server


@pytest.mark.emulator
def test_a_change_stream_accepts_only_strong_streaming_reads(pair: Pair) -> None:
    asked = [Asked(None, subject.start, subject.end) for subject in pair]
    official, scripted = (subject.caller.stale(query) for subject, query in zip(pair, asked, strict=True))
    assert (official.code, official.details) == (scripted.code, scripted.details)
    assert official.code is INVALID
    first, second = (
        refusal(lambda subject=subject, query=query: subject.caller.execute_sql(query))  # type: ignore[misc]
        for subject, query in zip(pair, asked, strict=True)
    )
    assert first == second
    assert "not supported for the ExecuteSql API" in first[1]


def test_read_functions_names_may_be_in_any_case_in_googlesql(subject: Subject) -> None:
    if subject.sample.dialect == "googlesql":
        sql = GOOGLESQL.query("Everything", IMMUTABLE).replace("READ_Everything", "read_everything")
        answer = subject.caller.ask(Asked(None, subject.start, subject.end, sql=sql))
        assert children_of(answer.records)
