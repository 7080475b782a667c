"""The campaign of cuts of files, without Spark: transfers between two tables are delivered, and the sink is killed.

``python -m tests.spark_sink.cuts --minutes 1000 --kills 20 --seed 1`` delivers minutes of transfers from a spool to
files, by the minute and by the epoch, and kills it at its writes: a file, a document, or the sink's record. After each
write two readers join the tables: as of each complete minute, where the sum must be right, and without, where it must
be wrong at least once.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random

from tests.spark_sink.cuts.killed_deliveries import seen


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.spark_sink.cuts")
    parser.add_argument("--minutes", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = False
    for by_minute in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            found = seen(Path(folder), Random(given.seed), given.minutes, given.kills, by_minute=by_minute)
        sys.stdout.write(
            f"seed {given.seed}, {'by the minute' if by_minute else 'by the epoch'}: {found.cuts} cuts after"
            f" {found.kills} kills, {len(found.wrong)} with a wrong sum; without cuts {found.halves} sums were wrong\n"
        )
        sys.stdout.flush()
        failed |= found.cuts != given.minutes or bool(found.wrong) or not found.halves
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
