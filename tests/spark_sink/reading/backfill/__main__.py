"""The campaign: a large database is backfilled under write load, and processes are killed on the way.

``python -m tests.spark_sink.reading.backfill --rows 500000 --kills 10 --dialect googlesql --sink files`` loads ten
tables, half of them interleaved in the others, and runs ``spanner-cdc run`` with ``source.backfill`` into files, or
into BigQuery by ``append-only``, ``merge`` or ``merge-load``, or into tables of Delta or Iceberg. It kills the service,
the daemon, drivers, JVMs or workers of Spark at random, and starts the service again. In the end the destination must
amount to what Spanner has at the last commit, and no row of a merged table may have gone back meanwhile; of Delta and
Iceberg some commits are compared with Spanner as of the last epoch in them. A failure names its seed, keeps its folder,
and writes there what is known of each row that differs.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from emulator import SampleDatabase, find_or_start
from tests.java import java_options
from tests.spark_sink.reading.backfill.campaign.campaign import Campaign, report
from tests.spark_sink.reading.backfill.campaign.destinations import SINKS, destination


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.reading.backfill")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dialect", choices=["googlesql", "postgresql"], default="googlesql")
    parser.add_argument("--sink", choices=SINKS, default="files")
    parser.add_argument("--writes", type=int, default=0, help="of the load, in large transactions")
    parser.add_argument("--capture", default="NEW_ROW", help="of delta and iceberg: the value capture type")
    given = parser.parse_args()
    os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())
    folder = Path(tempfile.mkdtemp(prefix="backfill-"))
    report(f"{given.rows} rows, {given.kills} kills, seed {given.seed}, {given.dialect}, {given.sink}: {folder}")
    with find_or_start(churn_seconds=10) as emulator, destination(given.sink, folder, given.capture) as target:
        sample = SampleDatabase.create(emulator.host, dialect=given.dialect, value_capture_type=target.captures)
        campaign = Campaign(sample, target, folder, rows=given.rows, seed=given.seed)
        wrong = campaign.run(given.kills, given.writes)
    report(f"seed {given.seed}: {wrong or 'the destination amounts to what Spanner has'}; {folder}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
