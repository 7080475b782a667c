"""How often key ranges have been split, merged and moved. Pure."""

from collections import Counter
from collections.abc import Mapping

from connector.core.partitions.partition import Partition, State
from connector.core.records import INITIAL_TOKEN


def churn_of(parent: Partition, partitions: Mapping[str, Partition]) -> Counter[str]:
    """The splits, merges, moves and ends that a partition which has just finished adds to the count.

    A merge counts once, when the last of its parents that are known finishes. The initial query counts for nothing.

    Args:
        parent: the partition that has finished.
        partitions: every partition that is not forgotten, by token.
    """
    churn: Counter[str] = Counter()
    if parent.token == INITIAL_TOKEN:
        return churn
    if not parent.children:
        return Counter(ends=1)
    merged = [child for child in parent.children if child in partitions and len(partitions[child].parents) > 1]
    for child in merged:
        known = [partitions[token] for token in partitions[child].parents if token in partitions]
        if all(partition.state is State.FINISHED for partition in known):
            churn["merges"] += 1
    if len(parent.children) > 1:
        churn["splits"] += 1
    elif not merged:
        churn["moves"] += 1
    return churn
