"""Cuts of BigQuery under load: ``python -m tests.spark_sink.sinks.bigquery.cuts.campaign --mode append-only``.

Transfers between accounts of two tables, beside readers, while the sink is killed. The sum over both tables has to be
right in every cut, and wrong at least once without one.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.local_bigquery import serving
from tests.spark_sink.sinks.bigquery.cuts.cut_runs import CutScenario, campaign


def main() -> int:
    """Runs the campaign; prints what it did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=["append-only", "merge-load"], default="append-only")
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        run = CutScenario(server, Path(folder), given.mode, given.seed, views=given.mode == "append-only")
        campaign(run, given.cuts, given.kills)
    did = ", ".join(f"{count:,} {what}" for what, count in sorted(run.did.items()))
    sys.stdout.write(f"{given.mode}: {did}, {time.monotonic() - started:.0f} seconds\n")
    return 0 if run.did["wrong sums without a cut"] else 1


if __name__ == "__main__":
    sys.exit(main())
