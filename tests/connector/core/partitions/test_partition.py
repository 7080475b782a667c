"""The states of a partition, and the transitions between them."""

import pytest

from connector.core.partitions import TRANSITIONS, IllegalTransitionError, Partition, PartitionChange, PartitionState
from connector.core.records import INITIAL_TOKEN
from tests.connector.core.partitions.graphs import graph_of, initial_graph, move

ALLOWED = [
    (PartitionState.CREATED, PartitionChange.PARENTS_FINISHED, PartitionState.SCHEDULED),
    (PartitionState.SCHEDULED, PartitionChange.QUERY_SENT, PartitionState.RUNNING),
    (PartitionState.RUNNING, PartitionChange.QUERY_BROKE, PartitionState.SCHEDULED),
    (PartitionState.RUNNING, PartitionChange.ENDED_FOR_GOOD, PartitionState.FINISHED),
    (PartitionState.SCHEDULED, PartitionChange.ENDED_FOR_GOOD, PartitionState.FINISHED),
    (PartitionState.RUNNING, PartitionChange.REACHED_END, PartitionState.FINISHED),
    (PartitionState.SCHEDULED, PartitionChange.REACHED_END, PartitionState.FINISHED),
]


@pytest.mark.parametrize(("before", "event", "after"), ALLOWED)
def test_a_partition_changes_its_state_as_the_table_says(
    before: PartitionState, event: PartitionChange, after: PartitionState
) -> None:
    partition = Partition("a", 10, 9, state=before)
    partition.change_state(event)
    assert partition.state is after


@pytest.mark.parametrize(
    ("before", "event"),
    [
        (s, e)
        for s in PartitionState
        for e in PartitionChange
        if (s, e) not in {(before, event) for before, event, _ in ALLOWED}
    ],
)
def test_a_transition_that_is_not_in_the_table_raises_and_changes_nothing(
    before: PartitionState, event: PartitionChange
) -> None:
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
