"""The states of a table in BigQuery: every combination of process, state and event."""

from itertools import product

import pytest

from spark_sink.sinks.bigquery.tables.records import TableRecord
from spark_sink.sinks.bigquery.tables.states import TRANSITIONS, Action, By, Event, State, is_examined, transition

IMPOSSIBLE = {
    # Nothing is recorded that could have been dropped.
    *((by, State.UNKNOWN, Event.DROPPED) for by in By),
    (By.REPLAY, State.STOPPED, Event.DROPPED),
    # What was created and does not exist was dropped.
    *((by, State.MADE, Event.ABSENT) for by in By),
    (By.REPLAY, State.REPAIRED, Event.ABSENT),
    # Only the sink goes by what is recorded, and only of a stopped table.
    *((by, state, Event.SKIPPED) for by in By for state in (State.UNKNOWN, State.MADE)),
    *((By.REPLAY, state, Event.SKIPPED) for state in (State.STOPPED, State.REPAIRED)),
    *(
        (By.SINK, state, event)
        for state in (State.STOPPED, State.REPAIRED)
        for event in (Event.UNFIT, Event.DROPPED, Event.ABSENT, Event.BEHIND, Event.FITS)
    ),
    # A replay resumes a stopped table.
    *((By.SINK, state, Event.RESUMED) for state in State),
    *((By.REPLAY, state, Event.RESUMED) for state in (State.UNKNOWN, State.MADE)),
}
EVERY = [(by, state, event) for by, states in TRANSITIONS.items() for state in states for event in states[state]]


def record_in(state: State) -> TableRecord:
    return TableRecord(
        source="Singers",
        columns={"Id": "INT64"} if state in (State.MADE, State.REPAIRED) else {},
        stopped="a reason" if state in (State.STOPPED, State.REPAIRED) else None,
    )


@pytest.mark.parametrize(("by", "state", "event"), list(product(By, State, Event)))
def test_each_event_has_one_transition_in_each_state_in_which_it_can_happen(by: By, state: State, event: Event) -> None:
    if (by, state, event) not in IMPOSSIBLE:
        assert isinstance(transition(by, state, event).action, Action)
        return
    with pytest.raises(ValueError, match=f"a table that is {state.name} for the {by.name} has no transition"):
        transition(by, state, event)


@pytest.mark.parametrize(("by", "state", "event"), EVERY)
def test_an_action_decides_which_states_may_follow(by: By, state: State, event: Event) -> None:
    step = transition(by, state, event)
    match step.action:
        case Action.SET_ASIDE | Action.FAIL | Action.HOLD:
            assert step.state is state
        case Action.STOP:
            assert step.state in (State.STOPPED, State.UNKNOWN)
        case Action.CREATE | Action.ADD_COLUMNS | Action.WRITE:
            assert step.state is (State.MADE if state in (State.UNKNOWN, State.MADE) else State.REPAIRED)
        case Action.RESUME:
            assert step.state in (State.UNKNOWN, State.MADE)


@pytest.mark.parametrize(("by", "state", "event"), EVERY)
def test_a_record_has_the_state_that_the_transition_leads_to(by: By, state: State, event: Event) -> None:
    after = transition(by, state, event).state
    before = record_in(state)
    assert before.state is state
    moved = before.moved(after, schema_key="key", mode="merge", columns={"Name": "STRING"}, reason="another reason")
    assert moved.state is after
    assert moved.stopped in (None, before.stopped or "another reason"), "the first reason stays"


def test_the_sink_never_writes_a_stopped_table_and_a_replay_never_stops_one_for_the_sink() -> None:
    writing = {Action.CREATE, Action.ADD_COLUMNS, Action.WRITE}
    for state in (State.STOPPED, State.REPAIRED):
        assert not writing & {step.action for step in TRANSITIONS[By.SINK][state].values()}
    for state in (State.UNKNOWN, State.MADE):
        assert State.STOPPED not in {step.state for step in TRANSITIONS[By.REPLAY][state].values()}


def test_only_a_replay_examines_a_stopped_table() -> None:
    assert [state for state in State if not is_examined(By.SINK, state)] == [State.STOPPED, State.REPAIRED]
    assert all(is_examined(By.REPLAY, state) for state in State)


def test_every_state_is_reached_from_an_unknown_table_and_can_be_left_for_a_written_one() -> None:
    def reached(start: State) -> set[State]:
        found, new = {start}, {start}
        while new:
            steps = {step.state for by in By for state in new for step in TRANSITIONS[by][state].values()}
            new = steps - found
            found |= new
        return found

    assert reached(State.UNKNOWN) == set(State)
    assert all(State.MADE in reached(state) for state in State)


def test_a_record_of_an_older_version_has_a_state() -> None:
    old = '{"source":"Singers","columns":{"Id":"INT64"}}'
    assert TableRecord.model_validate_json(old).state is State.MADE
