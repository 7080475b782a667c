import pytest

from connector.core.partitions import (
    TRANSITIONS,
    CutPartition,
    Event,
    IllegalTransitionError,
    PartitionGraph,
    State,
)
from connector.core.records import (
    INITIAL_TOKEN,
    ChildPartition,
    ChildPartitionsRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)


def announcement(start: int, *children: str, parents: tuple[str, ...] = ()) -> ChildPartitionsRecord:
    return ChildPartitionsRecord(
        start, "00000001", tuple(ChildPartition(token, frozenset(parents)) for token in children)
    )


def graph_of(*tokens: str, watermark: int = 9, end: int | None = None) -> PartitionGraph:
    """A graph whose partitions are all running, from the instant after the watermark on."""
    graph = PartitionGraph([CutPartition(token, watermark + 1) for token in tokens], watermark=watermark, end=end)
    assert graph.ready() == list(tokens)
    for token in tokens:
        graph.sent(token)
    return graph


def move(graph: PartitionGraph, parent: str, start: int, *children: str, parents: tuple[str, ...] = ()) -> None:
    """The parent announces children and ends in them."""
    graph.announced(parent, announcement(start, *children, parents=parents or (parent,)))
    assert graph.ended(parent, proven=None)


LIVES = [
    (State.CREATED, Event.PARENTS_FINISHED, State.SCHEDULED),
    (State.SCHEDULED, Event.QUERY_SENT, State.RUNNING),
    (State.RUNNING, Event.QUERY_BROKE, State.SCHEDULED),
    (State.RUNNING, Event.ENDED_FOR_GOOD, State.FINISHED),
    (State.SCHEDULED, Event.ENDED_FOR_GOOD, State.FINISHED),
    (State.RUNNING, Event.REACHED_END, State.FINISHED),
    (State.SCHEDULED, Event.REACHED_END, State.FINISHED),
]


@pytest.mark.parametrize(("before", "event", "after"), LIVES)
def test_a_partition_lives_as_the_table_says(before: State, event: Event, after: State) -> None:
    graph = PartitionGraph([CutPartition("a", 10)], watermark=9)
    graph["a"].state = before
    graph._move(graph["a"], event)
    assert graph["a"].state is after


@pytest.mark.parametrize(
    ("before", "event"),
    [(s, e) for s in State for e in Event if (s, e) not in {(before, event) for before, event, _ in LIVES}],
)
def test_what_is_not_in_the_table_raises_and_changes_nothing(before: State, event: Event) -> None:
    graph = PartitionGraph([CutPartition("a", 10)], watermark=9)
    graph["a"].state = before
    with pytest.raises(IllegalTransitionError, match=f"a {before.value} partition cannot have {event.value}"):
        graph._move(graph["a"], event)
    assert graph["a"].state is before


def test_the_table_holds_these_transitions_and_no_other() -> None:
    assert {(before, event): after for before, event, after in LIVES} == TRANSITIONS


def test_a_query_that_was_not_scheduled_cannot_be_sent() -> None:
    with pytest.raises(IllegalTransitionError):
        PartitionGraph.initial(10).sent(INITIAL_TOKEN)


def test_a_query_is_not_sent_twice() -> None:
    with pytest.raises(IllegalTransitionError):
        graph_of("a").sent("a")


def test_a_finished_partition_does_not_break() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "b")
    with pytest.raises(IllegalTransitionError):
        graph.broke("a")


def test_a_new_stream_begins_with_the_initial_query_at_the_start() -> None:
    graph = PartitionGraph.initial(10)
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


def test_the_initial_query_is_asked_from_the_start_again_for_its_answer_depends_on_where_it_begins() -> None:
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
    assert graph.discovered == 3


def test_an_announcement_that_comes_again_changes_nothing_of_a_child_that_runs() -> None:
    graph = graph_of("a", "b")
    move(graph, "a", 20, "c", parents=("a",))
    graph.ready()
    graph.sent("c")
    graph.proved("c", 30)
    graph.announced("b", announcement(20, "c", parents=("a",)))
    assert (graph["c"].state, graph["c"].progress) == (State.RUNNING, 30)


def test_a_parent_never_heard_of_holds_its_child_until_all_else_is_read_up_to_the_childs_start() -> None:
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
    graph._discovered("late", 15, frozenset())
    assert graph.advance() == 30


def test_a_child_partitions_record_proves_everything_before_its_start() -> None:
    graph = graph_of("a")
    graph.announced("a", announcement(20, "b", parents=("a",)))
    assert graph["a"].progress == 19


def test_a_clean_end_without_children_does_not_finish_a_partition() -> None:
    graph = graph_of("a")
    graph.proved("a", 30)
    assert not graph.ended("a", proven=None)
    assert graph["a"].state is State.RUNNING
    assert graph.broke("a") == 30
    assert graph.query_start("a") == 30


def test_children_seen_before_the_query_broke_do_not_finish_the_partition_for_a_sibling_may_be_missing() -> None:
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


def test_children_seen_before_the_query_broke_keep_the_partition_from_ending_at_the_users_end() -> None:
    graph = graph_of("a", end=40)
    graph.announced("a", announcement(20, "b", parents=("a",)))
    graph.broke("a")
    graph.sent("a")
    assert not graph.ended("a", proven=40)


def test_a_query_that_broke_among_announcements_is_resumed_from_before_their_start() -> None:
    graph = graph_of("a")
    graph.announced("a", announcement(20, "b", parents=("a",)))
    assert graph.broke("a") == 19
    assert graph.query_start("a") == 19


def test_a_query_begins_at_the_partitions_start_and_not_a_tick_before() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "b")
    assert graph.query_start("b") == 20


def test_a_query_after_a_restart_begins_at_the_watermark() -> None:
    graph = PartitionGraph([CutPartition("a", 10)], watermark=25)
    assert graph.query_start("a") == 25
    assert graph["a"].progress == 25


def test_a_clean_end_at_the_users_end_finishes_only_if_spanners_clock_had_passed_it() -> None:
    graph = graph_of("a", end=40)
    for proven in (None, 40):
        assert not graph.ended("a", proven=proven)
        graph.broke("a")
        graph.sent("a")
    assert graph.ended("a", proven=40)
    assert graph.advance() == 40
    assert graph.finished


def asked_again(graph: PartitionGraph, token: str) -> int:
    """Where its next query begins, which is sent."""
    graph.broke(token)
    start = graph.query_start(token)
    graph.sent(token)
    return start


def test_an_end_is_asked_for_once_more_from_the_progress_before_it_is_believed() -> None:
    graph = graph_of("a", end=40)
    graph.proved("a", 24)
    assert not graph.ended("a", proven=40)
    assert graph["a"].progress == 24
    assert asked_again(graph, "a") == 24
    assert graph.advance() == 24
    assert graph.ended("a", proven=40)
    assert graph.advance() == 40


def test_children_that_only_the_second_answer_holds_count() -> None:
    graph = graph_of("a", end=40)
    assert not graph.ended("a", proven=40)
    asked_again(graph, "a")
    graph.announced("a", ChildPartitionsRecord(20, "0", (ChildPartition("b", frozenset({"a"})),)))
    assert graph.ended("a", proven=40)
    assert graph.ready() == ["b"]
    assert graph.advance() == 19


def test_an_answer_with_something_new_is_asked_for_once_more_again() -> None:
    graph = graph_of("a", end=40)
    assert not graph.ended("a", proven=40)
    for progress in (20, 30):
        asked_again(graph, "a")
        graph.proved("a", progress)
        assert not graph.ended("a", proven=40)
    assert asked_again(graph, "a") == 30
    assert graph.ended("a", proven=40)


def test_a_query_that_breaks_or_was_sent_too_early_neither_proves_an_end_nor_undoes_a_proof() -> None:
    graph = graph_of("a", end=40)
    assert not graph.ended("a", proven=40)
    asked_again(graph, "a")
    asked_again(graph, "a")
    assert not graph.ended("a", proven=None)
    asked_again(graph, "a")
    assert graph.ended("a", proven=40)


def test_windows_in_the_past_cost_one_query_each_and_the_last_is_not_believed_yet() -> None:
    graph = graph_of("a")
    starts = []
    for bound in (20, 30, 40, 50):
        assert not graph.ended("a", proven=bound)
        starts.append(asked_again(graph, "a"))
    assert starts == [10, 20, 30, 40]


def test_a_partition_that_a_heartbeat_brought_to_the_end_has_finished_when_its_query_ends() -> None:
    graph = graph_of("a", end=40)
    graph.proved("a", 40)
    assert graph.ended("a", proven=None)


def test_a_partition_read_up_to_the_end_is_not_asked_again() -> None:
    graph = graph_of("a", end=40)
    graph.proved("a", 40)
    graph.broke("a")
    assert graph.nothing_left("a")
    assert graph["a"].state is State.FINISHED


def test_a_partition_not_read_up_to_the_end_is_asked_again() -> None:
    graph = graph_of("a", end=40)
    graph.proved("a", 39)
    graph.broke("a")
    assert not graph.nothing_left("a")


def test_without_an_end_nothing_reaches_it() -> None:
    graph = graph_of("a")
    graph.proved("a", 40)
    graph.broke("a")
    assert not graph.nothing_left("a")
    assert not graph.finished


def test_the_watermark_does_not_pass_the_users_end() -> None:
    graph = graph_of("a", end=40)
    graph.proved("a", 50)
    assert graph.advance() == 40


def test_the_users_end_ends_no_partition_so_that_a_later_run_goes_on_from_the_cut() -> None:
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


def test_a_run_with_an_end_that_is_reached_already_has_finished() -> None:
    assert PartitionGraph([CutPartition("a", 10)], watermark=40, end=40).finished


def test_the_cut_holds_who_is_alive_at_the_first_instant_after_the_watermark() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "b", "c")
    assert graph.cut(18) == [CutPartition("a", 10)]
    assert graph.cut(19) == [CutPartition("b", 20), CutPartition("c", 20)]


def test_the_cut_leaves_out_a_child_that_its_parent_announces_again() -> None:
    graph = graph_of("a", "b")
    move(graph, "a", 20, "d", parents=("a",))
    graph.announced("b", announcement(20, "c", parents=("b",)))
    assert graph.cut(19) == [CutPartition("b", 10), CutPartition("d", 20)]


def test_a_merge_child_whose_one_parent_has_finished_is_left_to_the_other() -> None:
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


def test_what_no_cut_can_hold_any_more_is_forgotten_when_it_is_sealed() -> None:
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


def test_a_partition_that_lives_for_no_time_is_crossed() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "b")
    graph.ready()
    graph.sent("b")
    move(graph, "b", 20, "c")
    assert graph.ready() == ["c"]
    assert graph.advance() == 19
    assert graph.cut(19) == [CutPartition("c", 20)]
    assert graph.query_start("c") == 20


def test_an_empty_graph_stays_where_it_is() -> None:
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


def test_who_has_not_finished_is_counted() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "b", "c")
    assert graph.alive() == 2
    assert len(graph) == 3


def test_a_partition_that_another_starts_waits_for_nobody_and_both_are_in_the_cut() -> None:
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


def test_a_partition_start_record_proves_what_came_before_it_and_holds_the_watermark_there() -> None:
    graph = graph_of("a")
    graph.started("a", PartitionStartRecord(20, ("b",)))
    graph.proved("a", 50)
    assert graph.advance() == 19


def test_a_start_record_that_comes_again_brings_nothing_back() -> None:
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


def test_a_start_record_behind_what_its_own_query_has_proved_starts_what_it_names() -> None:
    graph = graph_of("a")
    graph.proved("a", 30)
    assert graph.advance() == 30
    graph.started("a", PartitionStartRecord(20, ("b",)))
    assert (graph["b"].start, graph["b"].progress) == (20, 19)
    assert graph.ready() == ["b"]
    assert graph.query_start("b") == 20


def test_children_that_are_announced_behind_the_watermark_are_read_from_their_start() -> None:
    graph = graph_of("a")
    graph.proved("a", 30)
    assert graph.advance() == 30
    move(graph, "a", 20, "b")
    assert graph.ready() == ["b"]
    assert graph.query_start("b") == 20
    assert graph.advance() == 30
    assert graph.cut(30) == [CutPartition("b", 20)]


def test_a_partition_of_a_cut_that_was_announced_late_is_read_from_its_start_and_others_from_the_watermark() -> None:
    graph = PartitionGraph([CutPartition("a", 10), CutPartition("b", 20, is_late=True)], watermark=30)
    assert (graph.query_start("a"), graph.query_start("b")) == (30, 20)
    assert graph.advance() == 30


def test_a_partition_end_record_is_final_whatever_the_query_comes_to() -> None:
    graph = graph_of("a", "b")
    graph.terminated("a", PartitionEndRecord(25))
    graph.proved("b", 90)
    assert graph.advance() == 90
    assert graph.cut(24) == [CutPartition("a", 10), CutPartition("b", 10)]
    assert graph.cut(25) == [CutPartition("b", 10)]
    graph.broke("a")
    assert graph.nothing_left("a")


def test_the_end_of_a_window_is_progress_and_no_end_of_a_partition() -> None:
    graph = graph_of("a", end=100)
    assert not graph.ended("a", proven=40)
    assert asked_again(graph, "a") == 10
    assert not graph.ended("a", proven=40)
    assert graph["a"].progress == 40
    assert asked_again(graph, "a") == 40
    assert not graph.ended("a", proven=100)
    asked_again(graph, "a")
    assert graph.ended("a", proven=100)


def test_an_unproven_end_of_a_window_is_no_progress() -> None:
    graph = graph_of("a")
    assert not graph.ended("a", proven=None)
    assert graph["a"].progress == 9


def test_keys_that_move_hold_nothing_back_and_are_counted_once() -> None:
    graph = graph_of("a", "b")
    graph.moved("a", PartitionEventRecord(20, 0))
    graph.moved("b", PartitionEventRecord(20, 1))
    assert graph.churn["moves"] == 1
    assert graph.advance() == 19
    for token in ("a", "b"):
        graph.proved(token, 30)
    graph.moved("b", PartitionEventRecord(20, 1))
    assert graph.churn["moves"] == 1


def test_those_that_the_initial_query_starts_follow_it() -> None:
    graph = graph_of(INITIAL_TOKEN)
    graph.started(INITIAL_TOKEN, PartitionStartRecord(10, ("a",)))
    assert graph.ready() == []
    assert graph.cut(9) == [CutPartition(INITIAL_TOKEN, 10)]
    graph.started(INITIAL_TOKEN, PartitionStartRecord(10, ("b",)))
    assert graph.ended(INITIAL_TOKEN, proven=None)
    assert sorted(graph.ready()) == ["a", "b"]
    assert graph.cut(9) == [CutPartition("a", 10), CutPartition("b", 10)]


def test_an_initial_query_that_returned_nothing_finishes_nothing_wherever_it_ended() -> None:
    graph = graph_of(INITIAL_TOKEN, end=40)
    assert not graph.ended(INITIAL_TOKEN, proven=40)
    assert graph.advance() == 9
    graph.broke(INITIAL_TOKEN)
    assert not graph.nothing_left(INITIAL_TOKEN)


@pytest.mark.parametrize("starts", [(10, 20), (20, 10)])
def test_what_the_initial_query_returns_may_begin_at_different_instants_in_any_order(starts: tuple[int, int]) -> None:
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


def test_nothing_is_kept_of_children_that_have_started() -> None:
    graph = graph_of("a")
    move(graph, "a", 20, "c", parents=("a", "never heard of"))
    graph.ready()
    graph.advance()
    assert graph.ready() == ["c"]
    assert not graph._children_of
