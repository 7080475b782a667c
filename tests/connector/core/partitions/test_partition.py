"""The states of a partition, and the transitions between them."""

import pytest

from connector.core.partitions import TRANSITIONS, Event, IllegalTransitionError, Partition, State
from connector.core.records import INITIAL_TOKEN
from tests.connector.core.partitions.graphs import graph_of, initial_graph, move

ALLOWED = [
    (State.CREATED, Event.PARENTS_FINISHED, State.SCHEDULED),
    (State.SCHEDULED, Event.QUERY_SENT, State.RUNNING),
    (State.RUNNING, Event.QUERY_BROKE, State.SCHEDULED),
    (State.RUNNING, Event.ENDED_FOR_GOOD, State.FINISHED),
    (State.SCHEDULED, Event.ENDED_FOR_GOOD, State.FINISHED),
    (State.RUNNING, Event.REACHED_END, State.FINISHED),
    (State.SCHEDULED, Event.REACHED_END, State.FINISHED),
]


@pytest.mark.parametrize(("before", "event", "after"), ALLOWED)
def test_a_partition_changes_its_state_as_the_table_says(before: State, event: Event, after: State) -> None:
    partition = Partition("a", 10, 9, state=before)
    partition.change_state(event)
    assert partition.state is after


@pytest.mark.parametrize(
    ("before", "event"),
    [(s, e) for s in State for e in Event if (s, e) not in {(before, event) for before, event, _ in ALLOWED}],
)
def test_a_transition_that_is_not_in_the_table_raises_and_changes_nothing(before: State, event: Event) -> None:
    partition = Partition("a", 10, 9, state=before)
    with pytest.raises(IllegalTransitionError, match=f"a {before.value} partition cannot have {event.value}"):
        partition.change_state(event)
    assert partition.state is before


def test_the_table_has_these_transitions_and_no_others() -> None:
    assert {(before, event): after for before, event, after in ALLOWED} == TRANSITIONS


def test_a_partition_that_is_not_scheduled_cannot_be_queried() -> None:
    with pytest.raises(IllegalTransitionError):
        initial_graph(10).sent(INITIAL_TOKEN)


def test_a_query_is_not_sent_twice() -> None:
    with pytest.raises(IllegalTransitionError):
        graph_of("a").sent("a")


def test_a_finished_partition_does_not_break() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "b")
    with pytest.raises(IllegalTransitionError):
        graph.broke("a")
