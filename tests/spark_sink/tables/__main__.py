"""The campaign: a load is merged into tables of Delta or Iceberg, or appended to Parquet, while the sink is killed.

``python -m tests.spark_sink.tables --sink delta --mods 200000 --kills 20 --seed 1``, in an environment whose PySpark
has a library of the format, kills the service, the driver, the JVM or a worker of Spark. In the end the tables equal a
full read of Spanner, and some of their commits equal Spanner as of the last epoch in them; Parquet files have each
change of the spool once.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from emulator import SampleDatabase, find_or_start
from tests.java import java_options
from tests.spark_sink.backfill.campaign.campaign import report
from tests.spark_sink.backfill.campaign.lakes import LakeTables
from tests.spark_sink.backfill.campaign.tables import tables
from tests.spark_sink.tables.campaign.campaign import PARENTS, Campaign
from tests.spark_sink.tables.campaign.parquet_files import ParquetFiles


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.tables")
    parser.add_argument("--sink", choices=["delta", "iceberg", "parquet"], default="delta")
    parser.add_argument("--mods", type=int, default=200_000)
    parser.add_argument("--rows", type=int, default=20_000, help="of these mods, those of the first load")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--capture", default="NEW_ROW", help="the value capture type of the change stream")
    parser.add_argument("--dialect", choices=["googlesql", "postgresql"], default="googlesql")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--databases", type=int, default=5, help="one after the other; each has its part of mods and kills"
    )
    given = parser.parse_args()
    os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())
    folder = Path(tempfile.mkdtemp(prefix="tables-"))
    about = f"{given.sink}, {given.dialect}, {given.capture}, seed {given.seed}"
    report(f"{given.mods} mods, {given.kills} kills, {given.databases} databases, {about}: {folder}")
    with find_or_start(churn_seconds=10) as emulator:
        for number in range(given.databases):
            if wrong := _in_one_database(given, emulator.host, folder / str(number), given.seed + 10 * number):
                report(f"{about}: database {number}: {wrong}; {folder}")
                return 1
    report(f"{about}: nothing is missing, nothing is there twice; {folder}")
    return 0


def _in_one_database(given: argparse.Namespace, host: str, folder: Path, seed: int) -> str:
    """Part of the campaign: an emulator becomes slow with what its change stream has captured."""
    folder.mkdir()
    sample = SampleDatabase.create(host, dialect=given.dialect, value_capture_type=given.capture)
    path = folder / "lake"
    lake = (
        ParquetFiles(path) if given.sink == "parquet" else LakeTables(given.sink, path, given.capture, tables(PARENTS))
    )
    kills, mods, rows = (count // given.databases for count in (given.kills, given.mods, given.rows))
    try:
        return Campaign(sample, lake, folder, seed).run(kills, mods, rows)
    finally:
        lake.close()
        sample.drop()


if __name__ == "__main__":
    sys.exit(main())
