"""Partition graphs for tests: partitions that run, and what they announce."""

from connector.core.partitions import CutPartition, PartitionGraph
from connector.core.records import INITIAL_TOKEN, ChildPartition, ChildPartitionsRecord


def announcement(start: int, *children: str, parents: tuple[str, ...] = ()) -> ChildPartitionsRecord:
    """A child partitions record."""
    return ChildPartitionsRecord(
        start, "00000001", tuple(ChildPartition(token, frozenset(parents)) for token in children)
    )


def initial_graph(start: int) -> PartitionGraph:
    """A graph of the initial query alone, which reads from ``start``, inclusive."""
    return PartitionGraph([CutPartition(INITIAL_TOKEN, start)], watermark=start - 1)


def graph_of(*tokens: str, watermark: int = 9, end: int | None = None) -> PartitionGraph:
    """A graph whose partitions are all running, from the instant after the watermark."""
    graph = PartitionGraph([CutPartition(token, watermark + 1) for token in tokens], watermark=watermark, end=end)
    assert graph.ready() == list(tokens)
    for token in tokens:
        graph.sent(token)
    return graph


def move(graph: PartitionGraph, parent: str, start: int, *children: str, parents: tuple[str, ...] = ()) -> None:
    """The parent announces children and ends in them."""
    graph.announced(parent, announcement(start, *children, parents=parents or (parent,)))
    assert graph.ended(parent, proven=None)


def query_again(graph: PartitionGraph, token: str) -> int:
    """Breaks the partition's query and sends the next; returns where that starts."""
    graph.broke(token)
    start = graph.query_start(token)
    graph.sent(token)
    return start
