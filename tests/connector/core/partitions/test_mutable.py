"""Partitions of the MUTABLE_KEY_RANGE mode."""

from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN, PartitionEndRecord, PartitionEventRecord, PartitionStartRecord
from tests.connector.core.partitions.graphs import graph_of, query_again


def test_windows_in_the_past_cost_one_query_each_and_the_last_is_not_yet_believed() -> None:
    graph = graph_of("a")
    starts = []
    for bound in (20, 30, 40, 50):
        assert not graph.ended("a", proven=bound)
        starts.append(query_again(graph, "a"))
    assert starts == [10, 20, 30, 40]


def test_a_partition_started_by_another_waits_for_none_and_both_are_in_the_cut() -> None:
    graph = graph_of("a")
    graph.started("a", PartitionStartRecord(20, ("b", "c")))
    assert graph.ready() == ["b", "c"]
    graph.proved("a", 40)
    for token in ("b", "c"):
        graph.sent(token)
        graph.proved(token, 30)
    assert graph.advance() == 30
    assert graph.cut(30) == [CutPartition("a", 10), CutPartition("b", 20), CutPartition("c", 20)]
    assert graph.cut(18) == [CutPartition("a", 10)]


def test_a_partition_start_record_proves_everything_before_it_and_holds_the_watermark_there() -> None:
    graph = graph_of("a")
    graph.started("a", PartitionStartRecord(20, ("b",)))
    graph.proved("a", 50)
    assert graph.advance() == 19


def test_a_repeated_start_record_does_not_restore_a_forgotten_partition() -> None:
    graph = graph_of("a")
    graph.started("a", PartitionStartRecord(20, ("b",)))
    graph.ready()
    graph.sent("b")
    graph.terminated("b", PartitionEndRecord(25))
    assert graph.ended("b", proven=None)
    graph.proved("a", 30)
    graph.sealed(graph.advance())
    assert "b" not in graph
    graph.broke("a")
    graph.sent("a")
    graph.started("a", PartitionStartRecord(20, ("b",)))
    assert "b" not in graph


def test_a_start_record_behind_what_its_own_query_has_proved_still_starts_its_partitions() -> None:
    graph = graph_of("a")
    graph.proved("a", 30)
    assert graph.advance() == 30
    graph.started("a", PartitionStartRecord(20, ("b",)))
    assert (graph["b"].start, graph["b"].progress) == (20, 19)
    assert graph.ready() == ["b"]
    assert graph.query_start("b") == 20


def test_a_partition_end_record_is_final_however_the_query_ends() -> None:
    graph = graph_of("a", "b")
    graph.terminated("a", PartitionEndRecord(25))
    graph.proved("b", 90)
    assert graph.advance() == 90
    assert graph.cut(24) == [CutPartition("a", 10), CutPartition("b", 10)]
    assert graph.cut(25) == [CutPartition("b", 10)]
    graph.broke("a")
    assert graph.nothing_left("a")


def test_the_end_of_a_window_is_progress_and_not_the_end_of_a_partition() -> None:
    graph = graph_of("a", end=100)
    assert not graph.ended("a", proven=40)
    assert query_again(graph, "a") == 10
    assert not graph.ended("a", proven=40)
    assert graph["a"].progress == 40
    assert query_again(graph, "a") == 40
    assert not graph.ended("a", proven=100)
    query_again(graph, "a")
    assert graph.ended("a", proven=100)


def test_an_unproven_end_of_a_window_is_not_progress() -> None:
    graph = graph_of("a")
    assert not graph.ended("a", proven=None)
    assert graph["a"].progress == 9


def test_keys_that_move_delay_nothing_and_are_counted_once() -> None:
    graph = graph_of("a", "b")
    graph.moved("a", PartitionEventRecord(20, 0))
    graph.moved("b", PartitionEventRecord(20, 1))
    assert graph.churn["moves"] == 1
    assert graph.advance() == 19
    for token in ("a", "b"):
        graph.proved(token, 30)
    graph.moved("b", PartitionEventRecord(20, 1))
    assert graph.churn["moves"] == 1


def test_partitions_that_the_initial_query_starts_follow_it() -> None:
    graph = graph_of(INITIAL_TOKEN)
    graph.started(INITIAL_TOKEN, PartitionStartRecord(10, ("a",)))
    assert graph.ready() == []
    assert graph.cut(9) == [CutPartition(INITIAL_TOKEN, 10)]
    graph.started(INITIAL_TOKEN, PartitionStartRecord(10, ("b",)))
    assert graph.ended(INITIAL_TOKEN, proven=None)
    assert sorted(graph.ready()) == ["a", "b"]
    assert graph.cut(9) == [CutPartition("a", 10), CutPartition("b", 10)]
