import asyncio
from contextlib import aclosing, suppress

import grpc
import grpc.aio
import pytest

from connector.core.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionStartRecord,
    Record,
)
from connector.core.timestamps import SECOND
from connector.spanner.errors import CallAction, classify
from emulator import Fault, FaultKind, FaultPlan, Framing, Scenario, ScriptedError, ScriptedSpanner
from emulator.scenario.history import PartitionMode
from emulator.scripted.fault_plan import FATAL, RECOVERABLE
from emulator.scripted.spanner import ResetError, SessionExpiredError
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import FORMS, ORIGIN, Answer, Asked, ask, engine, refusal, scenario
from tests.property.virtual_time import run

_CODES = {
    FaultKind.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    FaultKind.ABORTED: grpc.StatusCode.ABORTED,
    FaultKind.RESOURCE_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    FaultKind.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    FaultKind.INTERNAL: grpc.StatusCode.INTERNAL,
    FaultKind.CANCELLED: grpc.StatusCode.CANCELLED,
    FaultKind.SESSION_EXPIRED: grpc.StatusCode.NOT_FOUND,
    FaultKind.CONNECTION_RESET: grpc.StatusCode.UNAVAILABLE,
    FaultKind.EXPIRED_START: grpc.StatusCode.OUT_OF_RANGE,
    FaultKind.EXPIRED_PARTITION: grpc.StatusCode.OUT_OF_RANGE,
}


@pytest.mark.parametrize("kind", _CODES, ids=str)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_error_is_injected_after_its_messages_and_the_next_query_succeeds(kind: FaultKind, after: int) -> None:
    plan = FaultPlan().rule(Fault(kind, after), token="left")
    served = engine(scenario(), now=30, faults=plan)
    broken = run(ask(served, "left"))
    assert refusal(broken)[0] is _CODES[kind]
    assert broken.messages == after
    assert run(ask(served, "left")).shown[-1] == "children east 20"
    assert plan.struck == {kind.value: 1}


def test_the_connector_retries_after_every_recoverable_error() -> None:
    def action(kind: FaultKind) -> CallAction:
        served = engine(scenario(), now=30, faults=FaultPlan().rule(Fault(kind)))
        code, message = refusal(run(ask(served)))
        return classify(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), message)).action

    for kind in RECOVERABLE & set(_CODES):
        assert action(kind) is not CallAction.STOP, kind
    for kind in FATAL:
        assert action(kind) is CallAction.STOP, kind


def test_the_text_of_an_error_can_be_chosen() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.INTERNAL, message="stream terminated by RST_STREAM with error code: 2"))
    assert "stream terminated" in refusal(run(ask(engine(scenario(), now=30, faults=plan))))[1]


def test_expired_sessions_and_resets_have_their_own_error_classes() -> None:
    for kind, error in ((FaultKind.SESSION_EXPIRED, SessionExpiredError), (FaultKind.CONNECTION_RESET, ResetError)):
        served = engine(scenario(), now=30, faults=FaultPlan().rule(Fault(kind)))
        assert isinstance(run(ask(served)).error, error)


def test_a_query_ends_cleanly_before_partitions_are_announced() -> None:
    for after, shown in ((0, []), (2, ["change 5", "change 10"])):
        plan = FaultPlan().rule(Fault(FaultKind.CLEAN_END, after))
        answer = run(ask(engine(scenario(), now=30, faults=plan), "left"))
        assert (answer.ok, answer.shown) == (True, shown)
        assert plan.struck == {"clean end": 1}


def test_a_query_does_not_end_cleanly_once_children_are_announced() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.CLEAN_END, 4))
    answer = run(ask(engine(scenario(), now=30, faults=plan), "left"))
    assert answer.shown[-2:] == ["children west 20", "children east 20"]
    assert not plan.struck
    initial = run(ask(engine(scenario(), now=30, faults=FaultPlan().rule(Fault(FaultKind.CLEAN_END, 1)))))
    assert initial.shown == ["children left 0", "children right 0"]


def test_an_initial_query_may_end_cleanly_with_nothing() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.CLEAN_END))
    answer = run(ask(engine(scenario(), now=30, faults=plan)))
    assert (answer.ok, answer.records) == (True, [])


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_a_clean_end_never_proves_an_end_that_was_not_reached(dialect: Dialect, mode: PartitionMode) -> None:
    plan = FaultPlan().rule(Fault(FaultKind.CLEAN_END), times=2)
    passed = run(ask(engine(scenario(dialect, mode), now=12, faults=plan), "left", start=4, end=12))
    assert passed.shown == ["change 5", "change 10", "change 10.5"]
    assert not plan.struck
    ahead = run(ask(engine(scenario(dialect, mode), now=12, faults=plan), "left", start=4, end=12.001))
    assert (ahead.ok, ahead.shown) == (True, [])


def test_a_clean_end_waits_until_a_row_is_whole() -> None:
    framing = Framing(1, rows=1, chunked=1.0)
    for after in range(1, 12):
        plan = FaultPlan().rule(Fault(FaultKind.CLEAN_END, after))
        answer = run(ask(engine(scenario(), now=30, faults=plan, framing=framing), "left"))
        assert answer.ok
        if plan.struck:
            assert answer.shown == ["change 5", "change 10", "change 10.5"][: len(answer.shown)]


def test_silence_sends_nothing_and_does_not_end() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.SILENCE, 1))
    served = engine(scenario(), now=4, faults=plan)
    asked = Asked(served.scenario, "left", 3)

    async def main() -> int:
        came = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(100_000), aclosing(served.execute(asked.sql, asked.parameters)) as messages:
                async for _ in messages:
                    came += 1
        assert asyncio.get_running_loop().time() == 100_000
        return came

    assert run(main()) == 1
    assert plan.struck == {"silence": 1}
    assert served.open == 0


def test_slowness_pauses_before_each_message() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.SLOWNESS, after=1, pause=3 * SECOND))
    answer = run(ask(engine(scenario(), now=30, faults=plan), "left"))
    assert answer.came == [30, 33, 36, 39, 42]
    assert plan.struck == {"slowness": 1}


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_an_omission_omits_announcements_only_from_a_query_over_the_past(dialect: Dialect, mode: PartitionMode) -> None:
    plan = FaultPlan().rule(Fault(FaultKind.OMISSION), token="left")
    served = engine(scenario(dialect, mode), now=30, faults=plan)
    ahead = run(ask(served, "left", start=12, end=31))
    assert len([shown for shown in ahead.shown if "west" in shown or "east" in shown]) == 2
    assert not plan.struck
    omitted, whole = (run(ask(served, "left", end=30)) for _ in range(2))
    assert omitted.ok
    assert omitted.shown[:3] == whole.shown[:3] == ["change 5", "change 10", "change 10.5"]
    assert not [shown for shown in omitted.shown if "west" in shown or "east" in shown]
    assert plan.struck == {"omission": 1}
    assert len(whole.shown) >= len(omitted.shown) + 2


def test_lateness_pauses_only_before_the_first_message() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.LATENESS, after=3, pause=90 * SECOND), token="left")
    served = engine(scenario(), now=30, faults=plan)
    assert run(ask(served, "left")).came == [120] * 5
    assert plan.struck == {"lateness": 1}
    assert run(ask(served, "left")).came == [120] * 5, "the next query is as ever"


@pytest.mark.parametrize("framing", [Framing.plain(), Framing.plain(100), Framing.drawn(4)], ids=str)
@pytest.mark.parametrize("after", [0, 1, 9])
def test_a_query_can_break_between_two_children(framing: Framing, after: int) -> None:
    plan = FaultPlan().rule(Fault(FaultKind.BREAK_BETWEEN_CHILDREN, after), token="left")
    broken = run(ask(engine(scenario(), now=30, faults=plan, framing=framing), "left"))
    assert broken.shown == ["change 5", "change 10", "change 10.5", "children west 20"]
    assert refusal(broken)[0] is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_the_initial_query_can_break_between_two_children(dialect: Dialect, mode: PartitionMode) -> None:
    plan = FaultPlan().rule(Fault(FaultKind.BREAK_BETWEEN_CHILDREN), token=None)
    broken = run(ask(engine(scenario(dialect, mode), now=30, faults=plan, framing=Framing.plain(9)), end=30))
    assert len(broken.shown) == 1
    assert not broken.ok


def test_a_fault_that_is_not_injected_is_left_for_the_tokens_next_query() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.ABORTED, 4), token="left")
    served = engine(scenario(), now=30, faults=plan)
    assert run(ask(served, "right", end=20)).ok
    assert run(ask(served, "left", end=5)).ok
    assert not run(ask(served, "left")).ok
    assert run(ask(served, "left")).ok


def test_a_rule_applies_as_often_as_it_says_and_to_any_token_by_default() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.ABORTED), times=3)
    served = engine(scenario(), now=30, faults=plan)
    assert [run(ask(served, token, end=20)).ok for token in (None, "left", "right", "left")] == [
        *(False, False, False, True),
    ]


def test_a_seeded_plan_is_the_same_for_a_seed_whatever_the_order_of_tokens() -> None:
    def drawn(seed: int, tokens: list[str]) -> dict[str, list[Fault | None]]:
        plan = FaultPlan(seed)
        out: dict[str, list[Fault | None]] = {token: [] for token in tokens}
        for token in tokens * 6:
            out[token].append(plan.next(token).fault)
        return out

    assert drawn(5, ["a", "b"]) == drawn(5, ["b", "a"])
    assert drawn(5, ["a"]) != drawn(6, ["a"])


def test_a_token_has_a_bounded_number_of_drawn_faults() -> None:
    plan = FaultPlan(5, share=1.0, most=4)
    faults = [plan.next(token).fault for _ in range(50) for token in ("a", None)]
    assert sum(found is not None for found in faults) == 8


def test_a_seeded_plan_draws_every_kind_except_those_that_stop_a_reader() -> None:
    plan = FaultPlan(1, share=1.0, most=10_000)
    kinds = {found.kind for _ in range(500) if (found := plan.next("a").fault)}
    assert kinds == RECOVERABLE
    with pytest.raises(ValueError, match="use a rule"):
        FaultPlan(1, kinds=[FaultKind.EXPIRED_START])


def test_a_plan_says_whether_it_may_reset_connections() -> None:
    assert FaultPlan(1).may_reset
    assert not FaultPlan(1, kinds=[FaultKind.ABORTED]).may_reset
    assert not FaultPlan().rule(Fault(FaultKind.ABORTED)).may_reset
    assert FaultPlan().rule(Fault(FaultKind.CONNECTION_RESET)).may_reset


@pytest.mark.long(but=9)
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
@pytest.mark.parametrize("seed", range(10))
def test_a_correct_reader_receives_everything_despite_drawn_faults(
    dialect: Dialect, mode: PartitionMode, seed: int
) -> None:
    script = Scenario.generate(seed, origin=ORIGIN, seconds=30, dialect=dialect, mode=mode, transactions=60)
    served = engine(script, now=3, faults=FaultPlan(seed), framing=Framing.drawn(seed))
    seen = run(_read_all(served, 40))
    expected = {(c.commit_timestamp, c.server_transaction_id, c.record_sequence) for c in script.history.changes()}
    assert seen == expected


async def _read_all(served: ScriptedSpanner, until: float) -> set[tuple[int, str, str]]:
    """The simplest reader that loses nothing: it queries each partition until an end proves that it is complete."""
    seen: set[tuple[int, str, str]] = set()
    starts: dict[str | None, float] = {None: 0.0}
    waiting: list[str | None] = [None]
    while waiting:
        token, finished = waiting.pop(), False
        while not finished:
            past_the_end = (served.clock.now() - ORIGIN) / SECOND >= until
            answer = await _patiently(served, token, starts[token], until)
            ends = token is not None and past_the_end
            for record in answer.records:
                if isinstance(record, DataChangeRecord):
                    seen.add((record.commit_timestamp, record.server_transaction_id, record.record_sequence))
                ends |= isinstance(record, PartitionEndRecord | ChildPartitionsRecord) or token is None
                for child, start in _announced(record):
                    if child not in starts:
                        starts[child] = (start - ORIGIN) / SECOND
                        waiting.append(child)
            finished = answer.ok and ends
    return seen


def _announced(record: Record) -> list[tuple[str, int]]:
    match record:
        case ChildPartitionsRecord():
            return [(child.token, record.start_timestamp) for child in record.children]
        case PartitionStartRecord():
            return [(token, record.start_timestamp) for token in record.tokens]
    return []


async def _patiently(served: ScriptedSpanner, token: str | None, start: float, until: float) -> Answer:
    try:
        async with asyncio.timeout(100):
            return await ask(served, token, start, until)
    except TimeoutError:  # silence
        return Answer(error=ScriptedError(grpc.StatusCode.CANCELLED, "the reader gave up on it"))


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_records_are_out_of_order_as_often_as_the_plan_says_and_none_is_missing(
    dialect: Dialect, mode: PartitionMode
) -> None:
    plan = FaultPlan().disorder(1)
    served = engine(scenario(dialect, mode), now=30, faults=plan)
    run(ask(served))
    assert not plan.struck
    broken, whole = (run(ask(served, "left", end=30)) for _ in range(2))
    assert whole.shown[:2] == ["change 5", "change 10"]
    assert broken.shown[:2] == ["change 10", "change 5"]
    assert sorted(broken.shown) == sorted(whole.shown)
    assert plan.struck == {"out of order": 1}


def test_a_single_record_out_of_order_follows_a_premature_heartbeat() -> None:
    plan = FaultPlan().disorder(1)
    answer = run(ask(engine(scenario(), now=30, faults=plan), "west", start=20, end=30))
    heartbeat, late = answer.records[:2]
    assert isinstance(heartbeat, HeartbeatRecord)
    assert isinstance(late, DataChangeRecord)
    assert heartbeat.timestamp == late.commit_timestamp + 1


def test_a_query_with_a_fault_keeps_its_order() -> None:
    plan = FaultPlan().disorder(1).rule(Fault(FaultKind.UNAVAILABLE, after=2), token="left")
    served = engine(scenario(), now=30, faults=plan)
    assert run(ask(served, "left")).shown == ["change 5", "change 10"]
    assert run(ask(served, "left")).shown[:2] == ["change 10", "change 5"]
