import asyncio

import grpc
import pytest

from emulator import ScriptedError
from emulator.scenario.history import PartitionMode
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import FORMS, Answer, ask, at, engine, refusal, scenario
from tests.property.virtual_time import run

IMMUTABLE, MUTABLE = FORMS[:2], FORMS[2:]


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_the_initial_query_returns_the_partitions_that_cover_its_start_and_ends(
    dialect: Dialect, mode: PartitionMode
) -> None:
    word = "children" if mode == "IMMUTABLE_KEY_RANGE" else "start"
    early = run(ask(engine(scenario(dialect, mode), now=30), start=3, end=29))
    assert early.ok
    assert early.shown == [f"{word} left 3", f"{word} right 3"]
    late = run(ask(engine(scenario(dialect, mode), now=30), start=26, end=29))
    assert late.shown == [f"{word} right 26", f"{word} west 26", f"{word} east 26"]


@pytest.mark.parametrize(("dialect", "mode"), IMMUTABLE)
def test_a_finished_partition_returns_all_records_at_once_its_children_last(
    dialect: Dialect, mode: PartitionMode
) -> None:
    answer = run(ask(engine(scenario(dialect, mode), now=30), "left"))
    assert answer.ok
    assert answer.shown == ["change 5", "change 10", "change 10.5", "children west 20", "children east 20"]
    assert answer.ended == 30


@pytest.mark.parametrize(("dialect", "mode"), MUTABLE)
def test_a_mutable_partition_ends_with_its_end_record(dialect: Dialect, mode: PartitionMode) -> None:
    answer = run(ask(engine(scenario(dialect, mode), now=30), "left", end=40))
    assert answer.ok
    assert answer.shown == [
        *("change 5", "change 10", "change 10.5", "event 18", "start west 20", "start east 20", "end 25"),
    ]
    assert answer.ended == 30


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_both_bounds_of_a_query_are_inclusive(dialect: Dialect, mode: PartitionMode) -> None:
    answer = run(ask(engine(scenario(dialect, mode), now=30), "left", start=5, end=10))
    assert answer.shown == ["change 5", "change 10"]
    assert answer.ok


def test_a_query_that_ends_at_the_partitions_end_returns_its_children() -> None:
    answer = run(ask(engine(scenario(), now=30), "left", start=20, end=20))
    assert answer.shown == ["children west 20", "children east 20"]


def test_records_are_sent_as_the_clock_reaches_them_with_heartbeats_between() -> None:
    answer = run(ask(engine(scenario(), now=4), "left", start=3, heartbeat=2000))
    assert list(zip(answer.shown, answer.came, strict=True)) == [
        ("change 5", 5.0),
        ("heartbeat 7", 7.0),
        ("heartbeat 9", 9.0),
        ("change 10", 10.0),
        ("change 10.5", 10.5),
        *((f"heartbeat {seconds:g}", seconds) for seconds in (12.5, 14.5, 16.5, 18.5)),
        ("children west 20", 20.0),
        ("children east 20", 20.0),
    ]


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_a_query_ends_once_the_clock_has_passed_its_end(dialect: Dialect, mode: PartitionMode) -> None:
    answer = run(ask(engine(scenario(dialect, mode), now=4), "left", start=3, end=10, heartbeat=3000))
    assert answer.ok
    assert answer.shown == ["change 5", "heartbeat 8", "change 10"]
    assert answer.ended == 10


def test_no_record_at_or_before_a_heartbeat_is_sent_after_it() -> None:
    answer = run(ask(engine(scenario(), now=1), "left", start=0, heartbeat=100))
    timestamps = [float(text.rpartition(" ")[2]) for text in answer.shown]
    assert timestamps == sorted(timestamps)
    for text, before in zip(answer.shown[1:], answer.shown, strict=False):
        if before.startswith("heartbeat"):
            assert float(text.rpartition(" ")[2]) > float(before.rpartition(" ")[2])


def test_backpressure_of_a_slow_reader_loses_nothing() -> None:
    async def main() -> Answer:
        served = engine(scenario(), now=4)
        answer = Answer()
        asked = ask(served, "left", start=3, heartbeat=1000, until=6)
        answer.records += (await asked).records
        await asyncio.sleep(60)
        answer.records += (await ask(served, "left", start=10.5)).records
        return answer

    assert run(main()).shown[-3:] == ["change 10.5", "children west 20", "children east 20"]


def test_a_query_without_rows_returns_its_metadata_and_ends() -> None:
    answer = run(ask(engine(scenario(), now=30), "left", start=6, end=7))
    assert (answer.messages, answer.records, answer.ok) == (1, [], True)


@pytest.mark.long
def test_thousands_of_idle_queries_wake_for_their_heartbeats_only() -> None:
    served = engine(scenario(), now=4)

    async def main() -> list[Answer]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(served, "right", start=3, end=24, heartbeat=10_000)) for _ in range(3_000)]
        return [task.result() for task in tasks]

    answers = run(main())
    assert {tuple(answer.shown) for answer in answers} == {("heartbeat 14",)}
    assert served.most_open == 3_000
    assert served.open == 0


def test_it_counts_statements_and_queries() -> None:
    served = engine(scenario(), now=30)

    async def main() -> None:
        for token in (None, "left", "left", "nobody's"):
            await ask(served, token, end=29)

    run(main())
    assert served.queries == {None: 1, "left": 2}
    assert served.refused == 1
    assert served.messages == 2 + 5 + 5


INVALID, OUT_OF_RANGE, NOT_FOUND = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.NOT_FOUND,
)


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        ({"start": None}, INVALID, "start_timestamp must not be null."),
        ({"heartbeat": None}, INVALID, "heartbeat_milliseconds must not be null."),
        (
            {"start": 5, "end": 4.5},
            INVALID,
            (
                "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received start_timestamp:"
                " 2026-09-21T14:13:25.123456789+00:00, end_timestamp: 2026-09-21T14:13:24.623456789+00:00."
            ),
        ),
        (
            {"token": "x"},
            INVALID,
            (
                "Specified partition_token is invalid, as it does not belong to the Change Stream associated with the"
                " TVF. Received partition_token: x."
            ),
        ),
        *(
            (
                {"heartbeat": heartbeat},
                OUT_OF_RANGE,
                (
                    "heartbeat_milliseconds must be within min 100 and max 300000. Received heartbeat_milliseconds:"
                    f" {heartbeat}."
                ),
            )
            for heartbeat in (99, 300_001)
        ),
        (
            {"start": -1, "end": 20},
            OUT_OF_RANGE,
            (
                "Specified start_timestamp is too far in the past. Please specify a start_timestamp within the earliest"
                " read timestamp: 2026-09-21T14:13:20.123456789+00:00. Received start_timestamp:"
                " 2026-09-21T14:13:19.123456789+00:00."
            ),
        ),
        ({"start": 630.1, "end": 631}, OUT_OF_RANGE, "Specified start_timestamp is too far in the future. Please"),
        (
            {"token": "west", "start": 19.999, "end": 25},
            OUT_OF_RANGE,
            (
                "Specified start_timestamp is invalid for the partition. Please specify a start_timestamp within"
                " 2026-09-21T14:13:40.123456789+00:00 and infinite-future. Received start_timestamp:"
                " 2026-09-21T14:13:40.122456789+00:00."
            ),
        ),
        ({"token": "left", "start": 25.1, "end": 29}, OUT_OF_RANGE, "Specified start_timestamp is invalid for the"),
    ],
)
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_an_invalid_query_is_rejected_with_the_emulators_code_and_message(
    dialect: Dialect, mode: PartitionMode, asked: dict[str, float | str | None], code: grpc.StatusCode, message: str
) -> None:
    query = {"end": 29.0} | asked
    token = query.pop("token", None)
    heartbeat = query.pop("heartbeat", 1000)
    start, end = query.pop("start", 0.0), query.pop("end")
    assert not isinstance(start, str)
    assert not isinstance(end, str)
    assert not isinstance(heartbeat, str)
    answer = run(
        ask(
            engine(scenario(dialect, mode), now=30),
            None if token is None else str(token),
            start,
            end,
            heartbeat=None if heartbeat is None else int(heartbeat),
        )
    )
    got_code, got_message = refusal(answer)
    assert got_code is code
    assert got_message.startswith(message)
    assert not answer.records


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_a_query_that_starts_in_the_future_waits_until_then(dialect: Dialect, mode: PartitionMode) -> None:
    initial = run(ask(engine(scenario(dialect, mode), now=3), start=26, end=29))
    assert (initial.ok, len(initial.records), initial.ended) == (True, 3, 26)
    answer = run(ask(engine(scenario(dialect, mode), now=3), "left", start=8, end=10.25, heartbeat=1000))
    assert (answer.shown, answer.ended) == (["heartbeat 9", "change 10"], 10.25)


def test_a_partition_does_not_exist_before_it_starts() -> None:
    answer = run(ask(engine(scenario(), now=19), "west", start=18))
    assert refusal(answer)[1].startswith("Specified partition_token is invalid")


def test_a_query_may_start_at_a_partitions_start_and_at_its_end() -> None:
    served = engine(scenario(), now=30)
    assert run(ask(served, "left", start=0, end=1)).ok
    assert run(ask(served, "left", start=20)).ok


def test_an_expired_start_and_an_expired_partition_are_out_of_range() -> None:
    retention = 7 * 86_400.0
    served = engine(scenario(), now=retention + 21)
    code, message = refusal(run(ask(served, "left", start=20)))
    assert code is OUT_OF_RANGE
    assert "too far in the past" in message
    assert "earliest read timestamp: 2026-09-21T14:13:41.123456789+00:00" in message
    code, message = refusal(run(ask(served, "left", start=22)))
    assert code is OUT_OF_RANGE
    assert message.startswith("This partition is no longer valid. All Change Stream records associated with this")
    assert run(ask(served, "west", start=22, end=23)).shown == ["change 22"]


def test_a_query_of_a_mutable_stream_ends_within_half_an_hour() -> None:
    script = scenario(mode="MUTABLE_KEY_RANGE")
    code, message = refusal(run(ask(engine(script, now=30), "left")))
    assert (code, message.partition(" for ")[0]) == (INVALID, "end_timestamp must not be null")
    assert run(ask(engine(script, now=30), "left", end=30 + 1800)).ok
    code, message = refusal(run(ask(engine(script, now=30), "left", end=30.001 + 1800)))
    assert code is INVALID
    assert "at most 30 minutes past" in message


@pytest.mark.parametrize(
    ("dialect", "mode", "sql", "code", "message"),
    [
        (
            *("googlesql", "IMMUTABLE_KEY_RANGE", "SELECT ChangeRecord FROM READ_Nope(@a, NULL, NULL, 1000)"),
            *(INVALID, "Table-valued function not found: READ_Nope [at 1:26]"),
        ),
        (
            *(
                "postgresql",
                "IMMUTABLE_KEY_RANGE",
                'SELECT * FROM "spanner"."read_json_Nope"($1, null, null, 1000, null)',
            ),
            *(NOT_FOUND, "[ERROR] function spanner.read_json_Nope(timestamp with time zone, timestamp"),
        ),
        (
            *("postgresql", "MUTABLE_KEY_RANGE"),
            'SELECT * FROM "spanner"."read_json_Everything"($1, null, null, 1000, null)',
            *(NOT_FOUND, "[ERROR] function spanner.read_json_Everything(timestamp with time zone, timestamp"),
        ),
        (
            *("postgresql", "IMMUTABLE_KEY_RANGE"),
            'SELECT * FROM "spanner"."read_proto_bytes_Everything"($1, null, null, 1000, null)',
            *(NOT_FOUND, "[ERROR] function spanner.read_proto_bytes_Everything(timestamp with time zone, timestamp"),
        ),
        (
            *("googlesql", "IMMUTABLE_KEY_RANGE"),
            'SELECT * FROM "spanner"."read_json_Everything"($1, null, null, 1000, null)',
            *(INVALID, "Syntax error"),
        ),
        (
            *("postgresql", "IMMUTABLE_KEY_RANGE", "SELECT * FROM READ_Everything(@a, NULL, NULL, 1000)"),
            *(INVALID, "[ERROR]"),
        ),
        (
            *("googlesql", "IMMUTABLE_KEY_RANGE", "SELECT * FROM READ_Everything(@b, NULL, NULL, 1000)"),
            *(INVALID, "No parameter found for binding: b"),
        ),
        (
            *("googlesql", "IMMUTABLE_KEY_RANGE", "SELECT * FROM READ_Everything(@a, NULL, NULL, 1000, 'x')"),
            *(grpc.StatusCode.UNIMPLEMENTED, "read_options must be null."),
        ),
        (
            *("googlesql", "IMMUTABLE_KEY_RANGE", "SELECT * FROM READ_Everything(start_timestamp => 'today')"),
            *(grpc.StatusCode.FAILED_PRECONDITION, "Could not parse today as a TIMESTAMP"),
        ),
        (
            *("googlesql", "IMMUTABLE_KEY_RANGE", "SELECT * FROM READ_Everything(starts => @a)"),
            *(INVALID, "Named argument starts not found"),
        ),
        (
            *("googlesql", "IMMUTABLE_KEY_RANGE", "SELECT * FROM READ_Everything(CURRENT_TIMESTAMP())"),
            *(INVALID, "Syntax error: an argument of the read function is neither a literal nor a parameter"),
        ),
    ],
)
def test_a_statement_that_does_not_read_this_stream_is_rejected(
    dialect: Dialect, mode: PartitionMode, sql: str, code: grpc.StatusCode, message: str
) -> None:
    answer = run(_statement(sql, dialect, mode))
    assert answer.error is not None
    assert answer.error.code is code
    assert answer.error.message.startswith(message)


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        (
            "googlesql",
            (
                "SELECT ChangeRecord FROM READ_Everything(start_timestamp => '{}', end_timestamp => TIMESTAMP \"{}\","
                " partition_token => NULL, heartbeat_milliseconds => 1000)"
            ),
        ),
        ("googlesql", "select ChangeRecord from read_everything('{}', '{}', NULL, 1000, NULL)"),
        ("postgresql", "SELECT * FROM spanner.read_json_Everything('{}', '{}'::timestamptz, NULL, 1000, NULL) ;"),
    ],
)
def test_arguments_may_be_literals(dialect: Dialect, sql: str) -> None:
    bounds = ("2026-09-21T14:13:21Z", "2026-09-21T16:13:23+02:00")
    answer = run(_statement(sql.format(*bounds), dialect, "IMMUTABLE_KEY_RANGE"))
    assert answer.ok
    assert answer.messages == 2


async def _statement(sql: str, dialect: Dialect, mode: PartitionMode) -> Answer:
    answer = Answer()
    parameters = dict.fromkeys(("a", "p1"), "2026-09-21T14:13:21Z")
    try:
        async for _ in engine(scenario(dialect, mode), now=30).execute(sql, parameters):
            answer.messages += 1
    except ScriptedError as error:
        answer.error = error
    return answer


def test_a_heartbeat_has_the_servers_time() -> None:
    answer = run(ask(engine(scenario(), now=4), "right", start=3, heartbeat=300, until=5))
    assert at(4.3) == at(4) + 300_000_000
    assert answer.shown[0] == "heartbeat 4.3"
