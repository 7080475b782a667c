"""The partitions that may start, the progress of the watermark, and the contents of the cut."""

import pytest

from connector.core.partitions import CutPartition, PartitionGraph, PartitionState
from connector.core.records import INITIAL_TOKEN
from tests.connector.core.partitions.graphs import announcement, graph_of, initial_graph, move


def test_a_new_stream_starts_with_the_initial_query_at_the_start() -> None:
    graph = initial_graph(10)
    assert graph.ready() == [INITIAL_TOKEN]
    assert graph.query_start(INITIAL_TOKEN) == 10
    assert graph.advance() == 9
    assert graph.cut(9) == [CutPartition(INITIAL_TOKEN, 10)]


def test_the_initial_query_holds_the_watermark_until_it_has_finished() -> None:
    graph = graph_of(INITIAL_TOKEN)
    graph.announced(INITIAL_TOKEN, announcement(10, "a"))
    assert graph.ready() == []
    assert graph.advance() == 9
    assert graph.cut(9) == [CutPartition(INITIAL_TOKEN, 10)]
    graph.announced(INITIAL_TOKEN, announcement(10, "b"))
    assert graph.ended(INITIAL_TOKEN, proven=None)
    assert sorted(graph.ready()) == ["a", "b"]
    assert graph.cut(9) == [CutPartition("a", 10), CutPartition("b", 10)]


def test_the_initial_query_is_repeated_from_the_start_because_its_result_depends_on_it() -> None:
    graph = graph_of(INITIAL_TOKEN)
    graph.announced(INITIAL_TOKEN, announcement(20, "a"))
    graph.broke(INITIAL_TOKEN)
    assert graph.query_start(INITIAL_TOKEN) == 10
    assert graph.advance() == 9
    restarted = PartitionGraph(graph.cut(19), watermark=19)
    assert restarted.query_start(INITIAL_TOKEN) == 10


def test_partitions_are_scheduled_once() -> None:
    graph = PartitionGraph([CutPartition("a", 10)], watermark=9)
    assert graph.ready() == ["a"]
    assert graph.ready() == []


def test_a_child_waits_for_its_parent() -> None:
    graph = graph_of("a")
    graph.announced("a", announcement(20, "b", parents=("a",)))
    assert graph.ready() == []
    assert graph.ended("a", proven=None)
    assert graph.ready() == ["b"]


def test_a_merge_child_waits_for_every_parent_and_is_scheduled_once() -> None:
    graph = graph_of("a", "b")
    move(graph, "a", 20, "c", parents=("a", "b"))
    assert graph.ready() == []
    move(graph, "b", 20, "c", parents=("a", "b"))
    assert graph.ready() == ["c"]
    assert len(graph) == 3


def test_a_repeated_announcement_does_not_change_a_running_child() -> None:
    graph = graph_of("a", "b")
    move(graph, "a", 20, "c", parents=("a",))
    graph.ready()
    graph.sent("c")
    graph.proved("c", 30)
    graph.announced("b", announcement(20, "c", parents=("a",)))
    assert (graph["c"].state, graph["c"].progress) == (PartitionState.RUNNING, 30)


def test_an_undiscovered_parent_holds_its_child_until_all_others_are_read_up_to_the_childs_start() -> None:
    graph = graph_of("a", "other")
    move(graph, "a", 20, "c", parents=("a", "unknown"))
    graph.proved("other", 18)
    graph.advance()
    assert graph.ready() == []
    graph.proved("other", 19)
    graph.advance()
    assert graph.ready() == ["c"]


def test_the_watermark_is_that_of_the_slowest_partition() -> None:
    graph = graph_of("a", "b")
    graph.proved("a", 30)
    assert graph.advance() == 9
    graph.proved("b", 20)
    assert graph.advance() == 20
    assert graph.is_laggard("b")
    assert not graph.is_laggard("a")


def test_a_child_that_waits_holds_the_watermark_below_its_start() -> None:
    graph = graph_of("a", "b")
    move(graph, "a", 20, "c", parents=("a", "b"))
    graph.proved("b", 19)
    assert graph.advance() == 19


def test_the_watermark_never_goes_back() -> None:
    graph = graph_of("a")
    graph.proved("a", 30)
    assert graph.advance() == 30
    graph.proved("a", 20)
    graph.announced("a", announcement(15, "late"))
    assert graph.advance() == 30


def test_a_child_partitions_record_proves_everything_before_its_start() -> None:
    graph = graph_of("a")
    graph.announced("a", announcement(20, "b", parents=("a",)))
    assert graph["a"].progress == 19


def test_a_clean_end_without_children_does_not_finish_a_partition() -> None:
    graph = graph_of("a")
    graph.proved("a", 30)
    assert not graph.ended("a", proven=None)
    assert graph["a"].state is PartitionState.RUNNING
    assert graph.broke("a") == 30
    assert graph.query_start("a") == 30


def test_children_seen_before_the_query_broke_do_not_finish_the_partition_since_a_sibling_may_be_missing() -> None:
    graph = graph_of("a")
    graph.announced("a", announcement(20, "b", parents=("a",)))
    graph.broke("a")
    graph.sent("a")
    assert not graph.ended("a", proven=None)
    graph.broke("a")
    graph.sent("a")
    graph.announced("a", announcement(20, "b", parents=("a",)))
    graph.announced("a", announcement(20, "c", parents=("a",)))
    assert graph.ended("a", proven=None)
    assert graph.ready() == ["b", "c"]


def test_a_query_that_broke_among_announcements_is_resumed_from_before_their_start() -> None:
    graph = graph_of("a")
    graph.announced("a", announcement(20, "b", parents=("a",)))
    assert graph.broke("a") == 19
    assert graph.query_start("a") == 19


def test_a_query_starts_at_the_partitions_start_and_not_a_nanosecond_before() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "b")
    assert graph.query_start("b") == 20


def test_a_query_after_a_restart_starts_at_the_watermark() -> None:
    graph = PartitionGraph([CutPartition("a", 10)], watermark=25)
    assert graph.query_start("a") == 25
    assert graph["a"].progress == 25


def test_a_run_whose_end_is_already_reached_has_finished() -> None:
    assert PartitionGraph([CutPartition("a", 10)], watermark=40, end=40).finished


def test_the_cut_has_the_partitions_alive_at_the_first_instant_after_the_watermark() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "b", "c")
    assert graph.cut(18) == [CutPartition("a", 10)]
    assert graph.cut(19) == [CutPartition("b", 20), CutPartition("c", 20)]


def test_the_cut_omits_a_child_that_its_parent_announces_again() -> None:
    graph = graph_of("a", "b")
    move(graph, "a", 20, "d", parents=("a",))
    graph.announced("b", announcement(20, "c", parents=("b",)))
    assert graph.cut(19) == [CutPartition("b", 10), CutPartition("d", 20)]


def test_the_cut_omits_a_merge_child_while_one_of_its_parents_is_alive() -> None:
    graph = graph_of("a", "b")
    move(graph, "a", 20, "c", parents=("a", "b"))
    graph.proved("b", 19)
    assert graph.cut(19) == [CutPartition("b", 10)]


def test_a_merge_child_is_found_again_after_a_restart_that_forgot_one_parent() -> None:
    graph = PartitionGraph([CutPartition("b", 10)], watermark=19)
    graph.ready()
    graph.sent("b")
    graph.announced("b", announcement(20, "c", parents=("a", "b")))
    graph.advance()
    assert graph.ready() == []
    assert graph.ended("b", proven=None)
    assert graph.ready() == ["c"]


def test_partitions_that_no_later_cut_can_hold_are_forgotten_at_the_seal() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "b")
    graph.ready()
    graph.sealed(18)
    assert "a" in graph
    graph.sealed(19)
    assert "a" not in graph
    assert [partition.token for partition in graph] == ["b"]


def test_a_parent_is_kept_while_a_child_waits_for_another() -> None:
    graph = graph_of("a", "b")
    move(graph, "a", 20, "c", parents=("a", "b"))
    graph.sealed(25)
    assert "a" in graph


def test_a_partition_that_starts_and_ends_at_one_instant_is_crossed() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "b")
    graph.ready()
    graph.sent("b")
    move(graph, "b", 20, "c")
    assert graph.ready() == ["c"]
    assert graph.advance() == 19
    assert graph.cut(19) == [CutPartition("c", 20)]
    assert graph.query_start("c") == 20


def test_the_watermark_of_an_empty_graph_does_not_move() -> None:
    assert PartitionGraph([], watermark=9).advance() == 9


def test_splits_merges_and_moves_are_counted_once_each_and_the_initial_query_not_at_all() -> None:
    graph = graph_of(INITIAL_TOKEN)
    move(graph, INITIAL_TOKEN, 10, "a", "b", parents=())
    for token in graph.ready():
        graph.sent(token)
    move(graph, "a", 20, "c", "d")
    move(graph, "b", 20, "e")
    for token in graph.ready():
        graph.sent(token)
    move(graph, "c", 30, "f", parents=("c", "d"))
    move(graph, "d", 30, "f", parents=("c", "d"))
    assert graph.churn == {"splits": 1, "moves": 1, "merges": 1}


def test_unfinished_partitions_are_counted() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "b", "c")
    assert graph.unfinished == 2
    assert len(graph) == 3


def test_children_announced_behind_the_watermark_are_read_from_their_start() -> None:
    graph = graph_of("a")
    graph.proved("a", 30)
    assert graph.advance() == 30
    move(graph, "a", 20, "b")
    assert graph.ready() == ["b"]
    assert graph.query_start("b") == 20
    assert graph.advance() == 30
    assert graph.cut(30) == [CutPartition("b", 20)]


def test_a_late_partition_of_a_cut_is_read_from_its_start_and_others_from_the_watermark() -> None:
    graph = PartitionGraph([CutPartition("a", 10), CutPartition("b", 20, is_late=True)], watermark=30)
    assert (graph.query_start("a"), graph.query_start("b")) == (30, 20)
    assert graph.advance() == 30


@pytest.mark.parametrize("starts", [(10, 20), (20, 10)])
def test_partitions_of_the_initial_query_may_start_at_different_instants_in_any_order(starts: tuple[int, int]) -> None:
    graph = graph_of(INITIAL_TOKEN)
    for start in starts:
        graph.announced(INITIAL_TOKEN, announcement(start, f"p{start}"))
        assert graph.advance() == 9
    assert graph.ended(INITIAL_TOKEN, proven=None)
    graph.ready()
    graph.sent("p10")
    graph.proved("p10", 30)
    assert graph.advance() == 19
    assert graph.cut(12) == [CutPartition(INITIAL_TOKEN, 10)]
    assert graph.cut(19) == [CutPartition("p10", 10), CutPartition("p20", 20)]


def test_children_that_have_started_are_no_longer_held_as_waiting() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "c", parents=("a", "never heard of"))
    graph.ready()
    graph.advance()
    assert graph.ready() == ["c"]
    assert not graph._waiting._children_of
