"""The campaign of histories: tables of mode history have the versions that all events have, computed at once.

``python -m tests.spark_sink.sinks.tables.history.campaign --sink delta --seeds 50``, in an environment whose PySpark
has a library of the format. Each seed is one of the campaign of the ends of backfills, with transactions that change a
key several times and are nanoseconds apart: rows of the backfill come before or after the changes, the sink and the
backfill are killed at named points, micro-batches are repeated with other bounds, and tables are stopped for a while.
"""

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pyspark.sql import Row, SparkSession

from tests.spark_sink.sinks.tables.campaign.backfill_ends import ENDS, BackfillEnds, run_seeds
from tests.spark_sink.sinks.tables.campaign.changing_source import TABLES
from tests.spark_sink.sinks.tables.history.source import NAMES, VersionedSource
from tests.spark_sink.sinks.tables.history.versions import Version, versions_of
from tests.spark_sink.sinks.tables.reading import target


class HistoryCampaign(BackfillEnds):
    """One seed; arguments as there."""

    source: VersionedSource

    def __init__(self, spark: SparkSession, of_format: str, end: str, folder: Path, seed: int) -> None:
        super().__init__(spark, of_format, end, folder, seed, VersionedSource, "history")
        self.kind = ", whole rows" if self.source.is_whole else ", changed columns"

    def wrong(self) -> str:
        """The differences between the versions in the tables and those of all events; empty if there are none."""
        found = (
            differences(
                stored_versions(self._spark, target(self._lake, self._format, table)),
                versions_of(self.source.events[table], NAMES),
            )
            for table in TABLES
        )
        return next(filter(None, found), "")


def stored_versions(spark: SparkSession, table: str) -> list[Version]:
    """The versions that a table has, in order; their times are compared with their sequence numbers."""
    spark.sql(f"REFRESH TABLE {table}")
    rows = spark.table(table).orderBy("Id", "_change_sequence_number").collect()
    return [_version(row) for row in rows]


def _version(row: Row) -> Version:
    start, end = row["_change_sequence_number"], row["_end_sequence_number"]
    assert not row["_is_deleted"], f"a DELETE is left: {row}"
    assert row["_is_current"] is (end is None), row
    for name, number in (("_valid_from", start), ("_valid_to", end)):
        assert row[name] == (None if number is None else _instant(number)), row
    values = {name: row[name] for name in NAMES}
    values["Balance"] = None if row["Balance"] is None else f"{row['Balance']:.2f}"
    captured = None if row["_captured"] is None else tuple(row["_captured"])
    return Version(row["Id"], values, captured, row["_mod_type"], start, end)


def _instant(number: str) -> datetime:
    """The commit timestamp of a change sequence number, as Spark's Python API has it."""
    microseconds = int(number[:16], 16) // 1000
    return datetime.fromtimestamp(microseconds // 1_000_000).replace(microsecond=microseconds % 1_000_000)  # noqa: DTZ006


def differences(found: Sequence[Version], expected: Sequence[Version]) -> str:
    """The first versions that one side lacks."""
    if found == expected:
        return ""
    missing = [version for version in expected if version not in found]
    more = [version for version in found if version not in expected]
    return f"{len(missing)} versions are missing, {len(more)} too many: {missing[:3]}, {more[:3]}"


def ends_of(seed: int) -> Sequence[str]:
    """One end a seed: tables are stopped in odd seeds, with either end."""
    return [ENDS[seed // 2 % 2]]


if __name__ == "__main__":
    sys.exit(run_seeds("tests.spark_sink.sinks.tables.history.campaign", HistoryCampaign, ends_of))
