"""The campaign of cuts of files: transfers between two tables are delivered as files, while the sink is killed.

``python -m tests.spark_sink.cuts --minutes 1000 --kills 20 --seed 1`` seals minutes of transfers into a spool, runs the
sink's process, and kills it. Beside it two readers join the tables: as of each complete minute, where the sum must be
right, and without, where it must be wrong at least once.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random

from tests.spark_sink.cuts.campaign import Campaign


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.spark_sink.cuts")
    parser.add_argument("--minutes", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = Campaign(Path(folder), Random(given.seed)).run(given.minutes, given.kills)
    sys.stdout.write(f"seed {given.seed}: {wrong or 'as it should be'}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
