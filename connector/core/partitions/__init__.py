"""The graph of change stream partitions: lineage, progress, watermark and cut."""

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
    "IllegalTransitionError",
    "Partition",
    "PartitionGraph",
    "State",
]
