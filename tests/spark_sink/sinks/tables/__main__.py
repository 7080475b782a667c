"""The campaign: a load is merged into tables of Delta or Iceberg, or appended to Parquet, while the sink is killed.

``python -m tests.spark_sink.sinks.tables --sink delta --mods 200000 --kills 20 --seed 1``, in an environment whose
PySpark has a library of the format, kills the service, the driver, the JVM or a worker of Spark. Each run of the sink
maintains the tables, as if a day had passed. In the end the tables equal a full read of Spanner, and some of their
commits equal Spanner as of the last epoch in them; Parquet files have each change of the spool once.
"""

import sys
from contextlib import ExitStack
from pathlib import Path

from emulator import SampleDatabase
from tests.spark_sink.in_turn import in_turn, options
from tests.spark_sink.reading.backfill.campaign.lakes import LakeTables
from tests.spark_sink.reading.backfill.campaign.tables import tables
from tests.spark_sink.sinks.tables.campaign.campaign import PARENTS, Campaign
from tests.spark_sink.sinks.tables.campaign.parquet_files import ParquetFiles
from tests.spark_sink.sinks.tables.catalogs.server import rest_catalog


def main() -> int:
    parser = options("python -m tests.spark_sink.sinks.tables", mods=200_000)
    parser.add_argument("--sink", choices=["delta", "iceberg", "parquet"], default="delta")
    parser.add_argument("--rows", type=int, default=20_000, help="of these mods, those of the first load")
    parser.add_argument("--rest", action="store_true", help="the tables of Iceberg are in a REST catalog")
    given = parser.parse_args()
    if given.rest and given.sink != "iceberg":
        parser.error("--rest is for Iceberg")

    def into_one_lake(host: str, folder: Path, seed: int) -> str:
        sample = SampleDatabase.create(host, dialect=given.dialect, value_capture_type=given.capture)
        kills, mods, rows = (count // given.databases for count in (given.kills, given.mods, given.rows))
        with ExitStack() as opened:
            opened.callback(sample.drop)
            rest = opened.enter_context(rest_catalog(folder)).address if given.rest else None
            lake = (
                ParquetFiles(folder / "lake")
                if given.sink == "parquet"
                else LakeTables(given.sink, folder / "lake", given.capture, tables(PARENTS), rest)
            )
            opened.callback(lake.close)
            return Campaign(sample, lake, folder, seed).run(kills, mods, rows)

    return in_turn(given, given.sink, into_one_lake)


if __name__ == "__main__":
    sys.exit(main())
