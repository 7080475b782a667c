"""The campaign: a bank's transfers are applied to another database, while processes are killed and answers are lost.

``python -m tests.spark_sink.sinks.spanner --mods 100000 --kills 20 --mode transactions --dialect googlesql --seed 1``
kills the service, the daemon, the driver, the JVM or a worker of Spark, and starts the service again. In the end both
databases have the same rows. Meanwhile the destination is looked at: in mode ``transactions`` the total never changes,
and a change stream of the destination proves that each transaction was applied once, in order. With ``--backfill`` the
destination begins with a backfill, and is looked at once that is done.
"""

import sys
from pathlib import Path

from tests.spark_sink.in_turn import in_turn, options
from tests.spark_sink.sinks.spanner.campaign.campaign import Campaign, databases


def main() -> int:
    parser = options("python -m tests.spark_sink.sinks.spanner", mods=100_000)
    parser.add_argument("--mode", choices=["rows", "transactions"], default="transactions")
    parser.add_argument("--backfill", action="store_true", help="the bank is open before the service starts")
    given = parser.parse_args()

    def between_two(host: str, folder: Path, seed: int) -> str:
        with databases(host, given.dialect, given.capture) as (source, replica):
            campaign = Campaign(source, replica, folder, given.mode, seed, backfill=given.backfill)
            return campaign.run(given.kills // given.databases, given.mods // given.databases)

    return in_turn(given, f"mode {given.mode}{', backfill' if given.backfill else ''}", between_two)


if __name__ == "__main__":
    sys.exit(main())
