"""The campaign: rows of a replica are damaged, deletes are lost in a gap, and all is repaired under load.

``python -m tests.spark_sink.reading.repairs --sink files --rows 200000 --damages 500`` loads ten tables, half of them
interleaved in the others, and runs ``spanner-cdc run`` with ``source.backfill`` into files, into another database, into
tables of Delta or Iceberg, or into local-bigquery by ``merge-load`` or ``append-only``. A fifth of the damages are
deletes that are lost in a gap (``--restart-at``); the others are made by hand at the destination. While the source is
written and the sink runs, ``spanner-cdc verify --repair`` repairs them, ``--kills`` times killed before. In the end the
destination must equal Spanner at the last commit, and another repair must find nothing.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from emulator import SampleDatabase, find_or_start
from tests.java import java_options
from tests.spark_sink.reading.backfill.campaign.campaign import report
from tests.spark_sink.reading.repairs.campaign import Campaign
from tests.spark_sink.reading.repairs.damages import SINKS, damaged


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.reading.repairs")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--damages", type=int, default=500)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dialect", choices=["googlesql", "postgresql"], default="googlesql")
    parser.add_argument("--sink", choices=SINKS, default="files")
    given = parser.parse_args()
    os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())
    folder = Path(tempfile.mkdtemp(prefix="repairs-"))
    report(f"{given.rows} rows, {given.damages} damages, seed {given.seed}, {given.dialect}, {given.sink}: {folder}")
    with find_or_start(churn_seconds=10) as emulator:
        sample = SampleDatabase.create(emulator.host, dialect=given.dialect, value_capture_type="NEW_ROW")
        with damaged(given.sink, folder, sample) as target:
            campaign = Campaign(sample, target, folder, rows=given.rows, seed=given.seed)
            wrong = campaign.run(given.damages, kills=given.kills)
    report(f"seed {given.seed}: {wrong or 'the destination equals Spanner'}; {folder}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
