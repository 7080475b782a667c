"""A process that runs seeds, one after the other, as it is told; its Spark session serves them all."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path

from pyspark.sql import SparkSession

from tests.soak.live_sink import spark_session
from tests.soak.seed import Outcome, run_in_one_process, run_in_processes


@dataclass(frozen=True, slots=True)
class Job:
    """A seed to run: in real processes, with their files in `folder`, or in one where it is None."""

    seed: int
    folder: Path | None

    @property
    def command(self) -> str:
        """What runs it again."""
        return f"python -m tests.soak --seed {self.seed}{' --in-one-process' if self.folder is None else ''}"


def run(job: Job, spark: Callable[[], SparkSession], say: Callable[[str], None]) -> Outcome:
    if job.folder is None:
        return run_in_one_process(job.seed)
    job.folder.mkdir(parents=True)
    return run_in_processes(job.seed, job.folder, spark, say)


def work(jobs: Connection, log: Path) -> None:
    """Runs every job that comes and sends its outcome, until there are no more. Spark's files lie beside `log`."""
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
