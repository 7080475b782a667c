"""The graph of change stream partitions: lineage, progress, watermark and cut."""

from connector.core.partitions.following import Follows, LeastParent, follow_all
from connector.core.partitions.graph import PartitionGraph
from connector.core.partitions.partition import (
    NOTHING,
    TRANSITIONS,
    CutPartition,
    IllegalTransitionError,
    Partition,
    PartitionChange,
    PartitionState,
)

__all__ = [
    "NOTHING",
    "TRANSITIONS",
    "CutPartition",
    "Follows",
    "IllegalTransitionError",
    "LeastParent",
    "Partition",
    "PartitionChange",
    "PartitionGraph",
    "PartitionState",
    "follow_all",
]
