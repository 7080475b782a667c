"""A process that runs one seed after the other; they share its Spark session."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path

from pyspark.sql import SparkSession

from tests.soak.background_sink import spark_session
from tests.soak.seed import Outcome, run_in_one_process, run_in_processes


@dataclass(frozen=True, slots=True)
class Job:
    """A seed to run: in real processes, with their files in `folder`, or in one process if that is None.

    With `kills`, only so many of its runs are killed.
    """

    seed: int
    folder: Path | None
    kills: int | None = None

    @property
    def command(self) -> str:
        """The command that runs it again."""
        kills = "" if self.kills is None else f" --kills {self.kills}"
        return f"python -m tests.soak --seed {self.seed}{' --in-one-process' if self.folder is None else kills}"


def run(job: Job, spark: Callable[[], SparkSession], report: Callable[[str], None]) -> Outcome:
    """Runs a job, and calls `report` with a line for each thing that happens."""
    if job.folder is None:
        return run_in_one_process(job.seed)
    job.folder.mkdir(parents=True)
    return run_in_processes(job.seed, job.folder, spark, report, job.kills)


def work(jobs: Connection, log: Path) -> None:
    """Runs jobs and sends their outcomes until it receives None. Spark's files are beside `log`."""
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    logging.disable()
    spark = cache(partial(spark_session, log.parent))
    while (job := jobs.recv()) is not None:
        jobs.send(run(job, spark, lambda line: print(line, flush=True)))  # noqa: T201
    if spark.cache_info().currsize:
        spark().stop()
