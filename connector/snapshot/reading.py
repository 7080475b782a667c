"""Reads the rows of a partition, or rows by key, as blocks; used where rows are processed, such as in Spark's tasks."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from connector.config import SourceConfig
from connector.snapshot.partitions import SnapshotPartition
from connector.snapshot.queries import TableQuery
from connector.snapshot.row_block import RowBlock


def read_partition(
    source: SourceConfig,
    emulator_host: str | None,
    partition: SnapshotPartition,
    *,
    rpc_priority: str = "medium",
    data_boost: bool = False,
) -> Iterator[RowBlock]:
    """Yields the rows of a partition, each once, in blocks; memory does not depend on how many there are.

    A transient error is retried with backoff from the last resume token. Rows after that token are not yielded before
    the next token has arrived.

    Args:
        source: the database.
        emulator_host: the environment's, or None.
        partition: what to read.
        rpc_priority: low, medium or high.
        data_boost: whether Spanner reads with Data Boost's own resources.

    Raises:
        SnapshotLostError: the session, the transaction or the token is gone: the table must be partitioned again.
        VersionRetentionError: the database no longer keeps the versions of the timestamp.
        UnreachableError: transient errors have lasted too long, or rows cannot be resumed: read the partition again.
        SpannerCdcError: another error, as one clear line.
    """
    raise NotImplementedError


def read_keys(
    source: SourceConfig,
    emulator_host: str | None,
    query: TableQuery,
    keys: pa.Array,
    key_columns: Sequence[str],
    timestamp: int,
    *,
    rpc_priority: str = "medium",
) -> Iterator[RowBlock]:
    """Yields the rows with these keys as of a timestamp, in blocks; keys without a row are omitted.

    The connection and its session are kept for later calls in this process.

    Args:
        source: the database.
        emulator_host: the environment's, or None.
        query: the table and the wanted columns; with the key's, to tell the rows apart. It must have no condition.
        keys: the texts of JSON objects with the key's columns, as in a change record; repeated ones count once.
        key_columns: the columns of the table's key, in the order of the key.
        timestamp: nanoseconds since the epoch.
        rpc_priority: low, medium or high.

    Raises:
        VersionRetentionError: the database no longer keeps the versions of the timestamp.
        UnreachableError: transient errors have lasted too long.
        SpannerCdcError: another error, as one clear line, for instance a column or a table that does not exist.
    """
    raise NotImplementedError
