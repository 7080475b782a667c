"""The campaign: random histories of DDL, applied to another database by a sink that is down half of the time.

``python -m tests.spark_sink.sinks.spanner.altering --seeds 50 --mode transactions --dialect googlesql --first 1`` adds
columns, drops them, adds them again with other types, renames tables, drops tables and creates them again with other
keys, and interleaves tables, with changes of rows between; in the end every cell of the source is compared.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from emulator import find_or_start
from tests.spark_sink.reading.backfill.campaign.campaign import report
from tests.spark_sink.sinks.spanner.altering.databases import between_two


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.sinks.spanner.altering")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--mode", choices=["rows", "transactions"], default="transactions")
    parser.add_argument("--dialect", choices=["googlesql", "postgresql"], default="googlesql")
    given = parser.parse_args()
    wrong, done = 0, Counter[str]()
    with find_or_start(churn_seconds=1000) as emulator:
        for seed in range(given.first, given.first + given.seeds):
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="altering-") as folder:
                found = between_two(emulator.host, given.dialect, Path(folder), given.mode, seed, done)
            if found:
                wrong += 1
                report(f"mode {given.mode}, {given.dialect}, seed {seed}: {found[:2000]}")
            else:
                report(f"mode {given.mode}, {given.dialect}, seed {seed}: equal, {time.monotonic() - started:.1f} s")
    counted = ", ".join(f"{count} {what}" for what, count in sorted(done.items()))
    report(f"mode {given.mode}, {given.dialect}: {given.seeds} seeds, {wrong} wrong; {counted}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
