"""A scripted stream with the option per_placement_tvf: its functions, its tokens and its lists."""

import grpc
import pytest
from google.protobuf.struct_pb2 import Value

from emulator import Scenario, ScriptedClock, ScriptedServer, ScriptedSpanner
from emulator.scenario.history import History, Partition, PartitionEnd, PartitionEvent
from emulator.scenario.placements import DEFAULT, EarlyStart, Placement, Placements
from emulator.workload.tables import TABLES, Dialect
from tests.emulator.scripted.raw_client import connected
from tests.emulator.scripted.scripted_stream import ORIGIN, Answer, ask, at, change, refusal, scenario
from tests.property.virtual_time import run

DIALECTS: tuple[Dialect, ...] = ("googlesql", "postgresql")
INVALID, OUT_OF_RANGE = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE
over_dialects = pytest.mark.parametrize("dialect", DIALECTS)


def placed(dialect: Dialect = "googlesql", *, has_plain: bool = False, early: EarlyStart = "accepted") -> Scenario:
    """A stream whose keys move from the default placement to Europe, which is created at 10, and back at 20.

    Europe is dropped at 30, and its function at 40.
    """
    partitions = (
        Partition(
            "home",
            ORIGIN,
            events=[
                change(5),
                PartitionEvent(at(12), "00000001", "home", destinations=("abroad",)),
                PartitionEvent(at(20), "00000001", "home", sources=("abroad",)),
                change(22),
            ],
            placement=DEFAULT,
        ),
        Partition(
            "abroad",
            at(10),
            end=at(25) + 1,
            events=[
                PartitionEvent(at(12), "00000001", "abroad", sources=("home",)),
                change(15),
                PartitionEvent(at(20), "00000001", "abroad", destinations=("home",)),
                PartitionEnd(at(25), "00000001", "abroad"),
            ],
            placement="Europe",
        ),
    )
    each = (Placement(DEFAULT, ORIGIN - 1), Placement("Europe", at(10), at(20), at(30), at(40)))
    return Scenario(
        0,
        dialect,
        "MUTABLE_KEY_RANGE",
        "NEW_ROW",
        History("MUTABLE_KEY_RANGE", ORIGIN, at(60), {partition.token: partition for partition in partitions}),
        TABLES,
        placements=Placements(each, has_plain, early),
    )


def served(script: Scenario, now: float) -> ScriptedSpanner:
    return ScriptedSpanner(script, clock=ScriptedClock(at(now)))


def asked(script: Scenario, placement: str | None, *words: object, now: float = 50, end: float = 35) -> Answer:
    """Asks the function of a placement, from a start and of a token."""
    start, token = (*words, None)[:2]
    assert isinstance(start, int)
    assert token is None or isinstance(token, str)
    return run(ask(served(script, now), token, start, end, placement=placement))


def listed(script: Scenario, now: float, sql: str) -> list[list[object]]:
    rows = served(script, now).describe(sql, {}).rows
    return [[getattr(value, value.WhichOneof("kind")) for value in map(Value.FromString, row)] for row in rows]


def functions(script: Scenario, now: float) -> list[object]:
    sql = "SELECT routine_name FROM information_schema.routines WHERE UPPER(routine_type) LIKE '%FUNCTION'"
    return [name for (name,) in listed(script, now, sql)]


@over_dialects
def test_each_function_returns_its_own_partitions_and_their_records(dialect: Dialect) -> None:
    script = placed(dialect)
    assert asked(script, DEFAULT, 15, now=35).shown == ["start home 15"]
    assert asked(script, "Europe", 15, now=35).shown == ["start abroad 15"]
    assert asked(script, "Europe", 10, "abroad", now=35).shown == ["event 12", "change 15", "event 20", "end 25"]
    assert asked(script, DEFAULT, 0, "home", now=35).shown == ["change 5", "event 12", "event 20", "change 22"]


@over_dialects
def test_a_token_of_another_function_is_refused(dialect: Dialect) -> None:
    script = placed(dialect)
    assert refusal(asked(script, "Europe", 15, "home", now=35)) == (
        INVALID,
        "Partition token home does not belong to the placement TVF",
    )
    assert refusal(asked(script, DEFAULT, 15, "abroad", now=35)) == (
        INVALID,
        "Partition token abroad does not belong to the placement TVF",
    )
    assert "does not belong to the Change Stream" in refusal(asked(script, DEFAULT, 15, "nobody's", now=35))[1]


@over_dialects
def test_the_function_without_a_placement_reads_all_of_them_if_it_exists(dialect: Dialect) -> None:
    assert "Everything" in refusal(asked(placed(dialect), None, 15))[1]
    whole = placed(dialect, has_plain=True)
    assert asked(whole, None, 15).shown == ["start home 15", "start abroad 15"]
    assert asked(whole, None, 15, "abroad").shown == ["change 15", "event 20", "end 25"]


@over_dialects
def test_a_function_exists_from_the_creation_of_its_placement_until_it_is_dropped(dialect: Dialect) -> None:
    script = placed(dialect)
    for now, exists in ((9.9, False), (10, True), (39.9, True), (40, False)):
        answer = asked(script, "Europe", 10, now=now)
        assert answer.ok == exists, now
        if not exists:
            missing = "not found" if dialect == "googlesql" else "does not exist"
            assert missing in refusal(answer)[1]
        assert any("europe" in str(name).lower() for name in functions(script, now)) == exists


def test_functions_and_placements_are_listed_as_they_are_at_the_servers_time() -> None:
    google, postgres = placed("googlesql", has_plain=True), placed("postgresql")
    assert functions(google, 5) == ["READ_Everything", "READ_Everything_default"]
    assert functions(google, 15) == ["READ_Everything", "READ_Everything_default", "READ_Everything_Europe"]
    assert functions(postgres, 15) == ["read_proto_bytes_everything_default", "read_proto_bytes_everything_europe"]
    assert listed(postgres, 15, "SELECT DISTINCT routine_schema, specific_schema FROM information_schema.routines") == [
        ["spanner", "spanner"]
    ]
    sql = "SELECT placement_name, is_default FROM information_schema.placements"
    assert listed(google, 15, sql) == [["default", True], ["Europe", False]]
    assert listed(postgres, 15, sql) == [["default", "YES"], ["Europe", "NO"]]
    assert listed(google, 30, sql) == [["default", True]]
    sql = "SELECT option_value FROM information_schema.change_stream_options WHERE option_name = 'per_placement_tvf'"
    assert listed(google, 15, sql) == [["true"]]


def test_a_placement_without_keys_can_be_dropped_while_the_server_runs() -> None:
    engine = served(placed(), 22)
    assert run(ask(engine, None, 15, 35, placement="Europe")).ok
    engine.drop_placement("Europe")
    assert "not found" in refusal(run(ask(engine, None, 15, 35, placement="Europe")))[1]
    sql = "SELECT routine_name FROM information_schema.routines UNION ALL SELECT 1 FROM information_schema.placements"
    assert len(engine.describe(sql, {}).rows) == 2
    with pytest.raises(ValueError, match="placement default cannot be dropped, because keys are in it"):
        engine.drop_placement("default")


def test_a_list_changes_while_the_server_runs() -> None:
    engine = served(placed(), 9)

    async def lists() -> list[int]:
        lengths = []
        for seconds in (9, 10, 39, 40):
            await engine.clock.sleep_until(at(seconds))
            lengths.append(len(engine.describe("SELECT routine_name FROM information_schema.routines", {}).rows))
        return lengths

    assert run(lists()) == [1, 2, 2, 1]


def test_functions_are_listed_and_called_over_grpc() -> None:
    with ScriptedServer.started(placed(), begins=at(15)) as server, connected(server) as client:
        sql = "SELECT routine_name FROM information_schema.routines"
        found = {value.string_value for message in client.stream(client.request(sql)) for value in message.values}
        assert found == {"READ_Everything_default", "READ_Everything_Europe"}
        query = client.query("home", 0, 14)
        query.sql = query.sql.replace("READ_Everything", "READ_Everything_Europe")
        with pytest.raises(grpc.RpcError, match="Partition token home does not belong to the placement TVF"):
            list(client.stream(query))


@pytest.mark.parametrize(
    ("early", "code", "message"),
    [
        (
            "earliest named",
            OUT_OF_RANGE,
            (
                "Specified start_timestamp is too far in the past. Please specify a start_timestamp within the earliest"
                " read timestamp: 2026-09-21T14:13:30.123456789+00:00. Received start_timestamp:"
                " 2026-09-21T14:13:29.123456789+00:00."
            ),
        ),
        (
            "refused",
            INVALID,
            (
                "Specified start_timestamp is too early for the placement TVF. Received start_timestamp:"
                " 2026-09-21T14:13:29.123456789+00:00."
            ),
        ),
    ],
)
def test_a_start_before_the_placement_may_be_refused(early: EarlyStart, code: grpc.StatusCode, message: str) -> None:
    assert refusal(asked(placed(early=early), "Europe", 9, now=35)) == (code, message)
    assert asked(placed(early=early), "Europe", 10, now=35).ok


def test_a_start_before_the_placement_may_be_taken_as_its_creation() -> None:
    assert asked(placed(), "Europe", 3, now=35).shown == ["start abroad 10"]


def test_a_stream_without_the_option_lists_its_one_function_and_no_placements() -> None:
    assert functions(scenario("googlesql"), 0) == ["READ_Everything"]
    assert functions(scenario("postgresql"), 0) == ["read_json_Everything"]
    assert listed(scenario(), 0, "SELECT placement_name FROM information_schema.placements") == []
