"""Counts how partitions follow each other. Pure."""

from collections import Counter
from collections.abc import Mapping

from connector.core.partitions.partition import Partition, PartitionState
from connector.core.records import is_initial


def churn_of(parent: Partition, partitions: Mapping[str, Partition]) -> Counter[str]:
    """The splits, merges, moves and ends that a partition which has just finished adds to the count.

    ``partitions`` are those of the graph, by id. A merge counts once, when the last of its parents that are known
    finishes. The initial query counts for nothing.
    """
    churn: Counter[str] = Counter()
    if is_initial(parent.token):
        return churn
    if not parent.children:
        return Counter(ends=1)
    known = [partitions[token] for token in parent.children if token in partitions]
    merged = [child for child in known if len(child.parents) > 1]
    for child in merged:
        parents = [partitions[token] for token in child.parents if token in partitions]
        churn["merges"] += all(one.state is PartitionState.FINISHED for one in parents)
    if len(parent.children) > 1:
        churn["splits"] += 1
    elif not merged:
        churn["moves"] += 1
    return churn
