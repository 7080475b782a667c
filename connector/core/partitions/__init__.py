"""The graph of change stream partitions: lineage, progress, watermark and cut."""

from connector.core.partitions.following import Follows, LeastParent, follow_all
from connector.core.partitions.graph import PartitionGraph
from connector.core.partitions.partition import (
    NOTHING,
    TRANSITIONS,
    CutPartition,
    Event,
    IllegalTransitionError,
    Partition,
    State,
)

__all__ = [
    "NOTHING",
    "TRANSITIONS",
    "CutPartition",
    "Event",
    "Follows",
    "IllegalTransitionError",
    "LeastParent",
    "Partition",
    "PartitionGraph",
    "State",
    "follow_all",
]
