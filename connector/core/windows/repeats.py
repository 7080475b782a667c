"""Drops what two shares have read of one partition. Pure."""

import numpy as np
import pyarrow as pa

from connector.core.changes import COLUMNS, Changes, Int64s, RecordSchema

_IDENTITY = [name for name in COLUMNS.names if name not in ("read_timestamp", "size", "record_schema")]


def without_repeats(changes: Changes, shares: Int64s) -> Changes:
    """The records without those that a share with a lesser number has read too.

    Only in the MUTABLE_KEY_RANGE mode two shares may read one partition. They are returned the same records, which
    differ only in when they were read. A row of a table lies in one partition at a commit timestamp, so records of two
    partitions are never alike. So no record needs to name its partition. Within a share nothing is dropped.

    Args:
        changes: whole commit timestamps, in commit order, and among equals in the order of their shares.
        shares: the number of the share of each record.
    """
    suspects = _suspects(changes, shares)
    if not len(suspects):
        return changes
    rows = pa.Table.from_batches([changes.batch.select(_IDENTITY).take(pa.array(suspects))]).to_pylist()
    codes = changes.column("record_schema")
    first: dict[tuple[RecordSchema, str], int] = {}
    """The least share that has each record."""
    keep = np.ones(len(changes), bool)
    for index, row in zip(suspects.tolist(), rows, strict=True):
        same = changes.record_schemas[codes[index].as_py()], repr(row)
        if first.setdefault(same, int(shares[index])) != shares[index]:
            keep[index] = False
    return changes.kept(keep)


def _suspects(changes: Changes, shares: Int64s) -> Int64s:
    """The indexes of records with a commit timestamp, transaction and sequence that several shares have."""
    if len(changes) < 2:
        return np.empty(0, np.int64)
    transactions, sequences = (
        column.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        for column in (changes.column("server_transaction_id"), changes.column("record_sequence"))
    )
    same = np.diff(changes.commit_timestamps) == 0
    same &= (np.diff(transactions) == 0) & (np.diff(sequences) == 0)
    groups = np.concatenate(([0], np.cumsum(~same)))
    crossing = groups[1:][same & (np.diff(shares) != 0)]
    return np.flatnonzero(np.isin(groups, crossing))
