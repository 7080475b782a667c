"""The records that a change stream query returns: data change, heartbeat and child partitions records, and others.

The fields are those of https://cloud.google.com/spanner/docs/change-streams/details, and for streams of partition mode
MUTABLE_KEY_RANGE those of the protocol buffer google.spanner.v1.ChangeStreamRecord. Values are frozen, and payloads
stay the JSON text that Spanner sent: nothing here parses a row.
"""

from dataclasses import dataclass
from functools import lru_cache

INITIAL_TOKEN = ""
"""Stands for the NULL token of the initial query, a partition like any other; Spanner's tokens are never empty."""

_OF_FUNCTION = "\x1f"
"""In an id: after the name of a read function, before the token."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column as a data change record names it.

    ``type`` is Spanner's type object in canonical JSON: sorted keys, no spaces, for example ``{"code":"INT64"}``.
    """

    name: str
    type: str
    is_primary_key: bool
    ordinal_position: int


@lru_cache(10_000)
def column_type(name: str, type: str, is_primary_key: bool, ordinal_position: int) -> ColumnType:  # noqa: A002, FBT001
    """A column, the same object each time: records name the same columns in many combinations."""
    return ColumnType(name, type, is_primary_key, ordinal_position)


@dataclass(frozen=True, slots=True)
class Mod:
    """One changed row. Each field is the text of a JSON object, ``{}`` where nothing was captured."""

    keys: str
    new_values: str
    old_values: str


@dataclass(frozen=True, slots=True)
class DataChangeRecord:
    """Changes of one type to one table, in one transaction, on one partition.

    ``commit_timestamp`` and ``read_timestamp`` (when the reader received it) are Unix nanoseconds.
    """

    commit_timestamp: int
    record_sequence: str
    server_transaction_id: str
    is_last_record_in_transaction_in_partition: bool
    table_name: str
    column_types: tuple[ColumnType, ...]
    mods: tuple[Mod, ...]
    mod_type: str
    value_capture_type: str
    number_of_records_in_transaction: int
    number_of_partitions_in_transaction: int
    transaction_tag: str
    is_system_transaction: bool
    read_timestamp: int
    size: int
    """Bytes that the record is accounted with while it is held in memory."""

    @property
    def order(self) -> tuple[int, str, int, str]:
        """Sorts records in commit order (record sequences count as numbers)."""
        return (
            self.commit_timestamp,
            self.server_transaction_id,
            sequence_number(self.record_sequence),
            self.record_sequence,
        )


@dataclass(frozen=True, slots=True)
class HeartbeatRecord:
    """Every record of the partition committed at or before ``timestamp`` (nanoseconds) has been returned."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class ChildPartition:
    """A partition that follows; ``parents`` is empty for those the initial query returns.

    Raises:
        ValueError: it has no token; the empty one is the initial query's.
    """

    token: str
    parents: frozenset[str]

    def __post_init__(self) -> None:
        if self.token == INITIAL_TOKEN:
            raise ValueError("a child partition has an empty token")


@dataclass(frozen=True, slots=True)
class ChildPartitionsRecord:
    """Partitions that take over at ``start_timestamp`` (nanoseconds).

    Raises:
        ValueError: it names none, so that nothing would be read after its partition.
    """

    start_timestamp: int
    record_sequence: str
    children: tuple[ChildPartition, ...]

    def __post_init__(self) -> None:
        if not self.children:
            raise ValueError("a child partitions record names no child partitions")


@dataclass(frozen=True, slots=True)
class PartitionStartRecord:
    """Partitions to be queried from ``start_timestamp`` (nanoseconds) on, beside the one that announces them."""

    start_timestamp: int
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionEndRecord:
    """The partition's last record: all its records were committed at or before ``end_timestamp`` (nanoseconds)."""

    end_timestamp: int


@dataclass(frozen=True, slots=True)
class PartitionEventRecord:
    """At ``commit_timestamp`` (nanoseconds) keys moved into the partition from others, or out of it."""

    commit_timestamp: int
    moves_in: int
    """From how many partitions they moved in."""


Record = (
    DataChangeRecord
    | HeartbeatRecord
    | ChildPartitionsRecord
    | PartitionStartRecord
    | PartitionEndRecord
    | PartitionEventRecord
)


def timestamp_of(record: Record) -> int:
    """The timestamp of a record's commit, or of what it announces; Unix nanoseconds."""
    match record:
        case DataChangeRecord() | PartitionEventRecord():
            return record.commit_timestamp
        case ChildPartitionsRecord() | PartitionStartRecord():
            return record.start_timestamp
        case PartitionEndRecord():
            return record.end_timestamp
        case HeartbeatRecord():
            return record.timestamp


def sequence_number(record_sequence: str) -> int:
    """The record sequence as a number; 0 where it is not a number, so that its text decides the order."""
    return int(record_sequence) if record_sequence.isdecimal() else 0


def partition_id(token: str, function: str | None = None) -> str:
    """The id of a partition: its token, and the read function that it belongs to.

    A change stream with ``per_placement_tvf`` has a function for each placement, and each function has tokens of its
    own. Where a stream has one function alone (None), the id is the token: all that takes a token takes an id.
    """
    if function is None and _OF_FUNCTION not in token:
        return token
    return f"{function or ''}{_OF_FUNCTION}{token}"


def token_of(partition: str) -> str:
    """The token in a partition's id; empty for an initial query."""
    return partition.partition(_OF_FUNCTION)[2] if _OF_FUNCTION in partition else partition


def function_of(partition: str) -> str | None:
    """The read function in a partition's id; None for the function of a stream that has one alone."""
    return partition.partition(_OF_FUNCTION)[0] or None if _OF_FUNCTION in partition else None


def beside(partition: str, token: str) -> str:
    """The id of the partition with a token that ``partition`` has announced: it belongs to the same function."""
    return partition_id(token, function_of(partition))


def is_initial(partition: str) -> bool:
    """True if the id is that of an initial query."""
    return not partition or (partition[-1] == _OF_FUNCTION and partition.index(_OF_FUNCTION) == len(partition) - 1)


def partition_name(partition: str) -> str:
    """The name of a partition in messages: its token, shortened, since tokens are long and differ at their ends."""
    token, function = token_of(partition), function_of(partition)
    name = "the initial query" if token == INITIAL_TOKEN else f"partition {token[:12]}…{token[-6:]}"
    return name if function is None else f"{name} of {function}"
