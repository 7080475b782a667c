"""Partitions of several read functions: tokens of their own, one watermark, and functions that appear while reading."""

from hypothesis import given
from hypothesis import strategies as st

from connector.core.late_records import passed_before
from connector.core.partitions import CutPartition, PartitionGraph
from connector.core.records import (
    ChildPartition,
    ChildPartitionsRecord,
    PartitionEndRecord,
    PartitionStartRecord,
    beside,
    function_of,
    is_initial,
    partition_id,
    partition_name,
    token_of,
)
from tests.connector.core.partitions.graphs import announcement, graph_of

F, G = partition_id("", "F"), partition_id("", "G")
TOKENS = st.text(alphabet=st.sampled_from("ab\x1f"))
FUNCTIONS = st.none() | st.from_regex(r"[A-Za-z_]\w{0,5}", fullmatch=True)


def of(function: str, token: str) -> str:
    return partition_id(token, function)


@given(TOKENS, FUNCTIONS)
def test_an_id_has_its_token_and_its_function(token: str, function: str | None) -> None:
    partition = partition_id(token, function)
    assert (token_of(partition), function_of(partition)) == (token, function)
    assert is_initial(partition) is (token == "")
    assert beside(partition, "other") == partition_id("other", function)


@given(TOKENS, FUNCTIONS, TOKENS, FUNCTIONS)
def test_ids_are_equal_only_if_token_and_function_are(
    token: str, function: str | None, other: str, other_function: str | None
) -> None:
    same = (token, function) == (other, other_function)
    assert (partition_id(token, function) == partition_id(other, other_function)) is same


def test_the_id_of_a_streams_only_function_is_the_token_and_a_name_has_the_function() -> None:
    assert partition_id("abc") == "abc"
    assert partition_name(F) == "the initial query of F"
    assert partition_name(of("F", "a" * 30)) == "partition aaaaaaaaaaaa…aaaaaa of F"


def test_an_announced_partition_is_of_the_function_of_its_announcer() -> None:
    graph = graph_of(F, G)
    for initial in (F, G):
        graph.started(initial, PartitionStartRecord(10, ("a",)))
        assert graph.ended(initial, proven=None)
    assert graph.ready() == [of("F", "a"), of("G", "a")]
    graph.sent(of("F", "a"))
    graph.started(of("F", "a"), PartitionStartRecord(20, ("b",)))
    assert of("F", "b") in graph
    assert of("G", "b") not in graph


def test_parents_are_of_the_same_function() -> None:
    graph = graph_of(of("F", "a"), of("F", "b"), of("G", "b"))
    graph.announced(of("F", "a"), announcement(20, "m", parents=("a", "b")))
    assert graph.ended(of("F", "a"), proven=None)
    assert graph[of("F", "m")].parents == {of("F", "a"), of("F", "b")}
    assert graph.ready() == []


def test_the_watermark_is_the_least_over_all_functions() -> None:
    graph = graph_of(of("F", "a"), of("G", "a"))
    graph.proved(of("F", "a"), 90)
    graph.proved(of("G", "a"), 40)
    assert graph.advance() == 40


def test_a_known_partition_of_another_function_makes_no_announcement_late() -> None:
    graph = graph_of(of("F", "a"), of("G", "b"))
    for one in (of("F", "a"), of("G", "b")):
        graph.proved(one, 50)
    graph.advance()
    graph[of("F", "a")].proved = 0
    record = ChildPartitionsRecord(30, "1", (ChildPartition("b", frozenset({"a"})),))
    assert passed_before(graph, of("F", "a"), record) == 50


def test_the_watermark_waits_for_the_list_of_functions_and_one_that_appears_starts_after_the_list() -> None:
    graph = graph_of(of("F", "a"))
    graph.functions.listed(20)
    graph.proved(of("F", "a"), 90)
    assert graph.advance() == 20
    graph.functions.appeared(G)
    graph.functions.listed(60)
    assert graph.advance() == 20
    assert graph.cut(20) == [CutPartition(of("F", "a"), 10), CutPartition(G, 21)]
    assert graph.ready() == [G]
    assert graph.query_start(G) == 21


def test_a_young_function_is_asked_from_its_first_start_and_stays_in_the_cut_from_the_list_before() -> None:
    graph = graph_of(of("F", "a"))
    graph.functions.listed(20)
    graph.functions.appeared(G)
    graph.ready()
    graph.functions.asked_from(G, 50)
    graph.functions.listed(60)
    graph.proved(of("F", "a"), 90)
    assert graph.query_start(G) == 50
    assert graph.advance() == 49
    assert CutPartition(G, 21) in graph.cut(30)


def test_a_function_without_partitions_holds_the_watermark_where_it_was_asked_and_is_in_no_cut() -> None:
    graph = graph_of(of("F", "a"), G)
    graph.proved(of("F", "a"), 90)
    graph.broke(G)
    graph.functions.empty_until(G, 40)
    assert graph.advance() == 40
    assert graph.query_start(G) == 41
    assert graph.cut(40) == [CutPartition(of("F", "a"), 10)]
    graph.functions.gone(G)
    assert graph.advance() == 90


def test_a_function_that_appears_under_the_name_of_one_that_has_ended_is_another() -> None:
    graph = graph_of(of("F", "a"), G)
    graph.started(G, PartitionStartRecord(10, ("g",)))
    assert graph.ended(G, proven=None)
    graph.ready()
    graph.sent(of("G", "g"))
    graph.terminated(of("G", "g"), PartitionEndRecord(15))
    assert graph.ended(of("G", "g"), proven=None)
    graph.functions.listed(20)
    graph.functions.appeared(G)
    graph.proved(of("F", "a"), 90)
    graph.sealed(graph.advance())
    assert G in graph
    assert graph.ready() == [G]


def test_a_graph_without_functions_is_never_held_by_a_list() -> None:
    graph = PartitionGraph([CutPartition("a", 10)], watermark=9)
    graph.ready()
    graph.sent("a")
    graph.proved("a", 90)
    assert graph.advance() == 90


def test_a_function_whose_partitions_have_ended_is_asked_again_and_is_in_no_cut() -> None:
    graph = graph_of(of("F", "a"))
    graph.functions.listed(20)
    graph.functions.has_ended(G)
    graph.functions.listed(60)
    graph.proved(of("F", "a"), 90)
    assert graph.advance() == 20
    assert graph.ready() == [G]
    assert graph.query_start(G) == 21
    assert graph.cut(20) == [CutPartition(of("F", "a"), 10)]


def test_a_function_whose_last_partition_ends_is_asked_from_there_on_and_holds_the_watermark() -> None:
    graph = graph_of(of("F", "a"), of("G", "g"), of("G", "h"))
    graph.functions.listed(60)
    graph.proved(of("F", "a"), 90)
    graph.terminated(of("G", "g"), PartitionEndRecord(30))
    assert G not in graph, "another partition of it is alive"
    graph.terminated(of("G", "h"), PartitionEndRecord(15))  # read last, and ends first
    assert graph.advance() == 30
    assert graph.ready() == [G]
    assert graph.query_start(G) == 31
    assert graph.cut(30) == [CutPartition(of("F", "a"), 10)]


def refilled() -> PartitionGraph:
    """F's last partition has ended at 199, and its initial query is sent from there on; G has been read further."""
    graph = graph_of(of("F", "p"), of("G", "k"))
    graph.functions.listed(1000)
    graph.terminated(of("F", "p"), PartitionEndRecord(199))
    assert graph.ended(of("F", "p"), proven=None)
    graph.proved(of("G", "k"), 500)
    assert graph.ready() == [F]
    graph.sent(F)
    return graph


def test_an_initial_query_that_broke_between_two_partitions_is_in_the_cut_though_its_function_was_empty() -> None:
    graph = refilled()
    assert graph.advance() == 199
    assert graph.cut(199) == [CutPartition(of("G", "k"), 10)], "it is asked again if it is listed"
    graph.started(F, PartitionStartRecord(200, ("a",)))
    graph.broke(F)
    assert graph.advance() == 199
    assert graph.cut(199) == [CutPartition(of("G", "k"), 10), CutPartition(F, 200)], "and returns a and its siblings"


def test_an_initial_query_that_broke_between_two_child_partitions_records_is_in_the_cut_too() -> None:
    graph = refilled()
    graph.announced(F, announcement(200, "a"))
    graph.broke(F)
    assert CutPartition(F, 200) in graph.cut(graph.advance())
