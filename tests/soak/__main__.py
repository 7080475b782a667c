"""``python -m tests.soak``: runs seeded scenarios with random faults and kills, and checks what was delivered.

A daemon reads a scripted Spanner whose queries break, and is killed at named points and at random times. Every fifth
seed runs the whole service, and kills Spark too. The files of the sink are compared with what was committed.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from functools import cache, partial
from pathlib import Path

import click

from tests.soak.background_sink import prepare_environment, spark_session
from tests.soak.campaign import Campaign, Enough
from tests.soak.process_runs import ROOT
from tests.soak.seed import Outcome
from tests.soak.summary import summary
from tests.soak.worker import Job, run


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0.0, min_open=True), default=10.0, show_default=True)
@click.option(
    "--seeds", type=click.IntRange(min=1), help="Run so many seeds with real processes, however long it takes."
)
@click.option("--first-seed", default=1, show_default=True)
@click.option("--seed", type=int, help="Replay this seed, and report what happens.")
@click.option("--kills", type=click.IntRange(min=0), help="Kill only the first so many runs of a seed.")
@click.option("--in-one-process", is_flag=True, help="With --seed: replay one of the seeds on virtual time.")
@click.option("--workers", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default="one a processor")
def main(
    *,
    minutes: float,
    seeds: int | None,
    first_seed: int,
    seed: int | None,
    kills: int | None,
    in_one_process: bool,
    workers: int,
) -> None:
    """Runs seeded scenarios with random faults and kills, and checks what was delivered."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    prepare_environment(ROOT)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    if seed is not None:
        sys.exit(_replay(Job(seed, None if in_one_process else folder / f"seed-{seed}", kills), folder))
    began = time.monotonic()
    ends = began + minutes * 60

    def enough(started: int) -> bool:
        return started >= seeds if seeds is not None else time.monotonic() >= ends

    sys.exit(_run(first_seed, enough, workers, folder, began, kills))


def _run(first_seed: int, enough: Enough, workers: int, folder: Path, began: float, kills: int | None) -> int:
    failed: list[Job] = []

    def report(job: Job, outcome: Outcome) -> None:
        if outcome.failure:
            failed.append(job)
            click.echo(f"FAILED: {job.command}   files: {job.folder}\n{outcome.failure}", err=True)
        elif job.folder is not None:
            click.echo(
                f"{time.monotonic() - began:6.0f} s  seed {job.seed:<6} {outcome.kind:<17} {outcome.seconds:5.1f} s,"
                f" {outcome.counts['restarts: total']} restarts, {outcome.counts['mods: delivered']} mods",
                err=True,
            )

    campaign = Campaign(first_seed, enough, workers=workers, folder=folder, report=report, kills=kills)
    campaign.run()
    click.echo(summary(campaign.outcomes, time.monotonic() - began))
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
        click.echo("0 lost silently, 0 duplicated, order kept; every run finished or explained why it stopped.")
        return 0
    for job in failed:
        click.echo(f"FAILED: {job.command}   files: {job.folder or 'none'}")
    return 1


def _replay(job: Job, folder: Path) -> int:
    spark = cache(partial(spark_session, folder))
    outcome = run(job, spark, lambda line: click.echo(line, err=True))
    click.echo(summary([outcome], outcome.seconds))
    click.echo(f"FAILED: {outcome.failure}" if outcome.failure else "Passed.")
    click.echo(f"files: {job.folder}")
    return 1 if outcome.failure else 0


if __name__ == "__main__":
    main()
