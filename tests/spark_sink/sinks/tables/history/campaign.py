"""The campaign of histories: tables of mode history have the versions that all events have, computed at once.

``python -m tests.spark_sink.sinks.tables.history.campaign --sink delta --seeds 50``, in an environment whose PySpark
has a library of the format. Each seed is one of the campaign of the ends of backfills, with transactions that change a
key several times and are nanoseconds apart: rows of the backfill come before or after the changes, the sink and the
backfill are killed at named points, micro-batches are repeated with other bounds, and tables are stopped for a while.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pyspark.sql import Row, SparkSession

from tests.spark_sink.reading.backfill.campaign.campaign import report
from tests.spark_sink.sinks.tables.campaign.backfill_ends import ENDS, BackfillEnds, session
from tests.spark_sink.sinks.tables.campaign.changing_source import TABLES
from tests.spark_sink.sinks.tables.history.source import NAMES, VersionedSource
from tests.spark_sink.sinks.tables.history.versions import Version, versions_of
from tests.spark_sink.sinks.tables.reading import target


class HistoryCampaign(BackfillEnds):
    """One seed; arguments as there."""

    source: VersionedSource

    def __init__(self, spark: SparkSession, of_format: str, end: str, folder: Path, seed: int) -> None:
        super().__init__(spark, of_format, end, folder, seed, VersionedSource, "history")

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
    return Version(row["Id"], values, captured, row["_change_type"], start, end)


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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.sinks.tables.history.campaign")
    parser.add_argument("--sink", choices=["delta", "iceberg"], default="delta")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    given = parser.parse_args()
    spark, failed = session(given.sink), 0
    for seed in range(given.seed, given.seed + given.seeds):
        started = time.monotonic()
        end = ENDS[seed // 2 % 2]  # tables are stopped in odd seeds
        with tempfile.TemporaryDirectory() as folder:
            one = HistoryCampaign(spark, given.sink, end, Path(folder), seed)
            wrong = one.run()
        failed += bool(wrong)
        captures = "whole rows" if one.source.is_whole else "changed columns"
        report(
            f"{given.sink}, seed {seed}, {end}, {captures}: {one.source.mods} mods, {one.kills} kills,"
            f" {one.letters} dead letters, {time.monotonic() - started:.0f} s: {wrong or 'equal'}"
        )
    report(f"{given.sink}: {failed} of {given.seeds} seeds are wrong")
    spark.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
