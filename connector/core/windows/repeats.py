"""Drops what two shares have read of one partition. Pure."""

from connector.core.changes import Changes, Int64s


def without_repeats(changes: Changes, shares: Int64s) -> Changes:
    """The records without those that a share with a lesser number has read too.

    Only in the MUTABLE_KEY_RANGE mode two shares may read one partition. They are returned the same records, which
    differ in nothing but when they were read; and a row of a table lies in one partition at a commit timestamp, so that
    records of two partitions are never alike. So no record needs to name its partition. Within a share nothing is
    dropped.

    Args:
        changes: whole commit timestamps, in commit order, and among equals in the order of their shares.
        shares: the number of the share of each record.
    """
    ...
