"""The campaign: a bank's transfers are applied to another database, while processes are killed and answers are lost.

``python -m tests.spark_sink.spanner --mods 100000 --kills 20 --mode transactions --dialect googlesql --seed 1`` kills
the service, the daemon, the driver, the JVM or a worker of Spark, and starts the service again. In the end both
databases have the same rows. Meanwhile the destination is looked at: in mode ``transactions`` the total never changes,
and a change stream of the destination proves that each transaction was applied once, in order.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from emulator import find_or_start
from tests.java import java_options
from tests.spark_sink.backfill.campaign.campaign import report
from tests.spark_sink.spanner.campaign.campaign import Campaign, databases


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.spanner")
    parser.add_argument("--mods", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--mode", choices=["rows", "transactions"], default="transactions")
    parser.add_argument("--dialect", choices=["googlesql", "postgresql"], default="googlesql")
    parser.add_argument("--capture", default="NEW_ROW", help="the value capture type of the change stream")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--databases", type=int, default=5, help="one after the other; each has its part of mods and kills"
    )
    given = parser.parse_args()
    os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())
    folder = Path(tempfile.mkdtemp(prefix="spanner-"))
    about = f"{given.dialect}, {given.capture}, mode {given.mode}, seed {given.seed}"
    report(f"{given.mods} mods, {given.kills} kills, {given.databases} pairs of databases, {about}: {folder}")
    with find_or_start(churn_seconds=10) as emulator:
        for number in range(given.databases):
            if wrong := _between_two(given, emulator.host, folder / str(number), given.seed + 10 * number):
                report(f"{about}: pair {number}: {wrong}; {folder}")
                return 1
    report(f"{about}: the destinations equal their sources; {folder}")
    return 0


def _between_two(given: argparse.Namespace, host: str, folder: Path, seed: int) -> str:
    """Part of the campaign: an emulator becomes slow with what its change stream has captured."""
    folder.mkdir()
    kills, mods = given.kills // given.databases, given.mods // given.databases
    with databases(host, given.dialect, given.capture) as (source, replica):
        return Campaign(source, replica, folder, given.mode, seed).run(kills, mods)


if __name__ == "__main__":
    sys.exit(main())
