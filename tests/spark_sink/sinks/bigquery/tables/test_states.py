"""The states of a table in BigQuery: every combination of process, state and event."""

from itertools import product

import pytest

from spark_sink.sinks.bigquery.tables.records import TableRecord
from spark_sink.sinks.bigquery.tables.states import (
    TRANSITIONS,
    By,
    TableAction,
    TableFinding,
    TableStage,
    is_examined,
    transition,
)

IMPOSSIBLE = {
    # Nothing is recorded that could have been dropped.
    *((by, TableStage.UNKNOWN, TableFinding.DROPPED) for by in By),
    (By.REPLAY, TableStage.STOPPED, TableFinding.DROPPED),
    # What was created and does not exist was dropped.
    *((by, TableStage.MADE, TableFinding.ABSENT) for by in By),
    (By.REPLAY, TableStage.REPAIRED, TableFinding.ABSENT),
    # Only the sink goes by what is recorded, and only of a stopped table.
    *((by, state, TableFinding.SKIPPED) for by in By for state in (TableStage.UNKNOWN, TableStage.MADE)),
    *((By.REPLAY, state, TableFinding.SKIPPED) for state in (TableStage.STOPPED, TableStage.REPAIRED)),
    *(
        (By.SINK, state, event)
        for state in (TableStage.STOPPED, TableStage.REPAIRED)
        for event in (
            TableFinding.UNFIT,
            TableFinding.DROPPED,
            TableFinding.ABSENT,
            TableFinding.BEHIND,
            TableFinding.FITS,
        )
    ),
    # A replay resumes a stopped table.
    *((By.SINK, state, TableFinding.RESUMED) for state in TableStage),
    *((By.REPLAY, state, TableFinding.RESUMED) for state in (TableStage.UNKNOWN, TableStage.MADE)),
}
EVERY = [(by, state, event) for by, states in TRANSITIONS.items() for state in states for event in states[state]]


def record_in(state: TableStage) -> TableRecord:
    return TableRecord(
        source="Singers",
        columns={"Id": "INT64"} if state in (TableStage.MADE, TableStage.REPAIRED) else {},
        stopped="a reason" if state in (TableStage.STOPPED, TableStage.REPAIRED) else None,
    )


@pytest.mark.parametrize(("by", "state", "event"), list(product(By, TableStage, TableFinding)))
def test_each_event_has_one_transition_in_each_state_in_which_it_can_happen(
    by: By, state: TableStage, event: TableFinding
) -> None:
    if (by, state, event) not in IMPOSSIBLE:
        assert isinstance(transition(by, state, event).action, TableAction)
        return
    with pytest.raises(ValueError, match=f"a table that is {state.name} for the {by.name} has no transition"):
        transition(by, state, event)


@pytest.mark.parametrize(("by", "state", "event"), EVERY)
def test_an_action_decides_which_states_may_follow(by: By, state: TableStage, event: TableFinding) -> None:
    step = transition(by, state, event)
    match step.action:
        case TableAction.SET_ASIDE | TableAction.FAIL | TableAction.HOLD:
            assert step.state is state
        case TableAction.STOP:
            assert step.state in (TableStage.STOPPED, TableStage.UNKNOWN)
        case TableAction.CREATE | TableAction.ADD_COLUMNS | TableAction.WRITE:
            assert step.state is (
                TableStage.MADE if state in (TableStage.UNKNOWN, TableStage.MADE) else TableStage.REPAIRED
            )
        case TableAction.RESUME:
            assert step.state in (TableStage.UNKNOWN, TableStage.MADE)


@pytest.mark.parametrize(("by", "state", "event"), EVERY)
def test_a_record_has_the_state_that_the_transition_leads_to(by: By, state: TableStage, event: TableFinding) -> None:
    after = transition(by, state, event).state
    before = record_in(state)
    assert before.state is state
    moved = before.moved(after, schema_key="key", mode="merge", columns={"Name": "STRING"}, reason="another reason")
    assert moved.state is after
    assert moved.stopped in (None, before.stopped or "another reason"), "the first reason stays"


def test_the_sink_never_writes_a_stopped_table_and_a_replay_never_stops_one_for_the_sink() -> None:
    writing = {TableAction.CREATE, TableAction.ADD_COLUMNS, TableAction.WRITE}
    for state in (TableStage.STOPPED, TableStage.REPAIRED):
        assert not writing & {step.action for step in TRANSITIONS[By.SINK][state].values()}
    for state in (TableStage.UNKNOWN, TableStage.MADE):
        assert TableStage.STOPPED not in {step.state for step in TRANSITIONS[By.REPLAY][state].values()}


def test_only_a_replay_examines_a_stopped_table() -> None:
    assert [state for state in TableStage if not is_examined(By.SINK, state)] == [
        TableStage.STOPPED,
        TableStage.REPAIRED,
    ]
    assert all(is_examined(By.REPLAY, state) for state in TableStage)


def test_every_state_is_reached_from_an_unknown_table_and_can_be_left_for_a_written_one() -> None:
    def reached(start: TableStage) -> set[TableStage]:
        found, new = {start}, {start}
        while new:
            steps = {step.state for by in By for state in new for step in TRANSITIONS[by][state].values()}
            new = steps - found
            found |= new
        return found

    assert reached(TableStage.UNKNOWN) == set(TableStage)
    assert all(TableStage.MADE in reached(state) for state in TableStage)


def test_a_record_of_an_older_version_has_a_state() -> None:
    old = '{"source":"Singers","columns":{"Id":"INT64"}}'
    assert TableRecord.model_validate_json(old).state is TableStage.MADE
