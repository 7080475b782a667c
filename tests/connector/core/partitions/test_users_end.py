"""The user's end timestamp: when a partition has been read up to it."""

from connector.core.partitions import CutPartition, PartitionGraph, PartitionState
from connector.core.records import INITIAL_TOKEN, ChildPartition, ChildPartitionsRecord
from tests.connector.core.partitions.graphs import announcement, graph_of, move, query_again


def test_children_seen_before_the_query_broke_keep_the_partition_from_ending_at_the_users_end() -> None:
    graph = graph_of("a", end=40)
    graph.announced("a", announcement(20, "b", parents=("a",)))
    graph.broke("a")
    graph.sent("a")
    assert not graph.ended("a", proven=40)


def test_a_clean_end_at_the_users_end_finishes_only_if_spanners_clock_had_passed_it() -> None:
    graph = graph_of("a", end=40)
    for proven in (None, 40):
        assert not graph.ended("a", proven=proven)
        graph.broke("a")
        graph.sent("a")
    assert graph.ended("a", proven=40)
    assert graph.advance() == 40
    assert graph.finished


def test_an_end_is_believed_after_a_second_query_from_the_progress() -> None:
    graph = graph_of("a", end=40)
    graph.proved("a", 24)
    assert not graph.ended("a", proven=40)
    assert graph["a"].progress == 24
    assert query_again(graph, "a") == 24
    assert graph.advance() == 24
    assert graph.ended("a", proven=40)
    assert graph.advance() == 40


def test_children_that_only_the_second_query_returns_count() -> None:
    graph = graph_of("a", end=40)
    assert not graph.ended("a", proven=40)
    query_again(graph, "a")
    graph.announced("a", ChildPartitionsRecord(20, "0", (ChildPartition("b", frozenset({"a"})),)))
    assert graph.ended("a", proven=40)
    assert graph.ready() == ["b"]
    assert graph.advance() == 19


def test_a_second_query_that_returns_something_new_has_to_be_confirmed_too() -> None:
    graph = graph_of("a", end=40)
    assert not graph.ended("a", proven=40)
    for progress in (20, 30):
        query_again(graph, "a")
        graph.proved("a", progress)
        assert not graph.ended("a", proven=40)
    assert query_again(graph, "a") == 30
    assert graph.ended("a", proven=40)


def test_a_query_that_breaks_or_was_sent_too_early_neither_proves_an_end_nor_undoes_a_proof() -> None:
    graph = graph_of("a", end=40)
    assert not graph.ended("a", proven=40)
    query_again(graph, "a")
    query_again(graph, "a")
    assert not graph.ended("a", proven=None)
    query_again(graph, "a")
    assert graph.ended("a", proven=40)


def test_a_partition_whose_heartbeat_reached_the_end_finishes_when_its_query_ends() -> None:
    graph = graph_of("a", end=40)
    graph.proved("a", 40)
    assert graph.ended("a", proven=None)


def test_a_partition_read_up_to_the_end_is_not_query_again() -> None:
    graph = graph_of("a", end=40)
    graph.proved("a", 40)
    graph.broke("a")
    assert graph.nothing_left("a")
    assert graph["a"].state is PartitionState.FINISHED


def test_a_partition_not_read_up_to_the_end_is_query_again() -> None:
    graph = graph_of("a", end=40)
    graph.proved("a", 39)
    graph.broke("a")
    assert not graph.nothing_left("a")


def test_without_an_end_no_partition_reaches_it() -> None:
    graph = graph_of("a")
    graph.proved("a", 40)
    graph.broke("a")
    assert not graph.nothing_left("a")
    assert not graph.finished


def test_the_watermark_does_not_pass_the_users_end() -> None:
    graph = graph_of("a", end=40)
    graph.proved("a", 50)
    assert graph.advance() == 40


def test_the_users_end_ends_no_partition_so_that_a_later_run_continues_from_the_cut() -> None:
    graph = graph_of("a", end=40)
    graph.ended("a", proven=40)
    assert graph.cut(40) == [CutPartition("a", 10)]
    later = PartitionGraph(graph.cut(40), watermark=40, end=50)
    assert later.ready() == ["a"]
    assert later.query_start("a") == 40


def test_a_child_that_starts_after_the_users_end_is_kept_and_not_queried() -> None:
    graph = graph_of("a", end=40)
    move(graph, "a", 41, "b")
    assert graph.ready() == []
    assert graph.advance() == 40
    assert graph.finished
    assert graph.cut(40) == [CutPartition("b", 41)]


def test_a_child_that_starts_at_the_users_end_is_queried() -> None:
    graph = graph_of("a", end=40)
    move(graph, "a", 40, "b")
    assert graph.ready() == ["b"]


def test_an_initial_query_that_returned_nothing_never_finishes_its_partition() -> None:
    graph = graph_of(INITIAL_TOKEN, end=40)
    assert not graph.ended(INITIAL_TOKEN, proven=40)
    assert graph.advance() == 9
    graph.broke(INITIAL_TOKEN)
    assert not graph.nothing_left(INITIAL_TOKEN)
