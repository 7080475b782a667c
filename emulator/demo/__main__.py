"""`python -m emulator.demo` (`make demo`): replicate a workload with `spanner-cdc run`, and compare both ends.

A workload commits to a sample database of the official emulator, whose change stream partitions split, merge and move
every few seconds. Without an emulator and a Docker engine, a scripted Spanner server takes its place. The service
replicates the database through the daemon and Spark into Datastream files. Then every event in the files is compared
with the record of what was committed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from google.api_core.exceptions import GoogleAPIError

from emulator.demo.run import progress, run, run_series
from emulator.demo.service import DemoError
from emulator.demo.verdict import Verdict
from emulator.errors import EmulatorFailedError, EmulatorNotFoundError
from emulator.workload.tables import Dialect


@click.command()
@click.option(
    *("--output", "output"),
    type=click.Path(path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    help="The folder to write to; it is emptied first.",
)
@click.option("--mods", default=20_000, show_default=True, help="Commit at least this many mods.")
@click.option("--churn", default=12, show_default=True, help="Cross at least this many splits, merges and moves.")
@click.option(
    "--dialect",
    type=click.Choice(["googlesql", "postgresql"]),
    default="googlesql",
    show_default=True,
    help="The database's dialect.",
)
@click.option("--scripted", is_flag=True, help="Use the scripted server even if there is an emulator.")
@click.option("--times", type=click.IntRange(min=1), default=1, help="Run the demo this often and print the sum.")
def main(output: Path, mods: int, churn: int, dialect: Dialect, times: int, *, scripted: bool) -> None:
    """Replicate a workload on the Spanner emulator into Datastream files, and compare both ends.

    The exit code is 1 if anything committed is lost, delivered twice, out of order, or if the demo cannot run.
    """
    started = time.monotonic()

    def run_in(folder: Path) -> Verdict:
        return run(folder, mods=mods, churn=churn, dialect=dialect, scripted=scripted)

    try:
        good = run_in(output).good if times == 1 else run_series(output, times, run_in)
    except (DemoError, EmulatorNotFoundError, EmulatorFailedError) as error:
        progress(f"demo: {error}")
        sys.exit(1)
    except GoogleAPIError as error:
        progress(f"demo: the emulator refuses a call: {' '.join(str(error).split())}")
        sys.exit(1)
    progress(f"took {time.monotonic() - started:.0f} s")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main(prog_name="python -m emulator.demo")
