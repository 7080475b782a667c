"""One run of the demo: commit a workload, replicate it with `spanner-cdc run`, compare both ends."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import click

from emulator.demo.service import DemoError, running_service
from emulator.demo.source import demo_source
from emulator.demo.summary import print_series, print_summary
from emulator.demo.verdict import Verdict, compare, delivered_events
from emulator.errors import EmulatorFailedError, EmulatorNotFoundError
from emulator.workload.tables import Dialect


def run(output: Path, *, mods: int, churn: int, dialect: Dialect, scripted: bool) -> Verdict:
    """Runs the demo in `output`, which is emptied first, and prints how both ends compare.

    Args:
        output: the folder for the events, the spool, the checkpoint, the log and the configuration.
        mods: how many mods to commit, at least.
        churn: how many splits, merges and moves of partitions the reader must cross, at least.
        dialect: the database's dialect.
        scripted: use the scripted server even if there is an emulator.

    Raises:
        DemoError: the service ended, is stalled, or crossed too few splits, merges and moves.
        EmulatorNotFoundError: the emulator that the environment names does not answer.
        EmulatorFailedError: there is an emulator, and it does not start.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    with demo_source(dialect, mods=mods, churn=churn, scripted=scripted) as source:
        progress(f"the demo runs against {source.description}")
        with running_service(output, source.address) as service:
            progress(f"its status page is {service.page} while it runs; starting Spark")
            service.wait_until_ready()
            ready = time.time_ns()
            source.commit(mods, churn, lambda: sum(service.partition_churn().values()), progress)
            committed = source.committed
            progress(f"committed {len(committed)} mods; waiting for the last of them")
            service.wait_until_sealed(committed[-1].commit_timestamp_ns)
            crossed = service.partition_churn()
            service.drain()
        events = list(delivered_events(service.events))
        judgement = source.judge((event.identity[0] for event in events), service.errors())
        verdict = compare(source.committed, events, ready=ready, judgement=judgement)
    print_summary(verdict, judgement, crossed, service.events, source.description)
    if sum(crossed.values()) < churn:
        raise DemoError(f"only {sum(crossed.values())} splits, merges and moves were crossed, not {churn}")
    return verdict


def run_series(output: Path, times: int, run_in: Callable[[Path], Verdict]) -> bool:
    """Runs the demo `times` times, each in a folder below `output`; prints the sum; returns whether every run was good.

    A run that fails is printed, and the series continues.
    """
    verdicts: list[Verdict] = []
    failures: list[str] = []
    for number in range(1, times + 1):
        progress(f"demo {number} of {times}")
        try:
            verdicts.append(run_in(output / f"run-{number}"))
        except (DemoError, EmulatorNotFoundError, EmulatorFailedError) as error:
            failures.append(f"demo {number}: {error}")
            progress(failures[-1])
    print_series(times, verdicts, failures)
    return len(verdicts) == times and all(verdict.good for verdict in verdicts)


def progress(text: str) -> None:
    """Prints a line of progress on standard error."""
    click.echo(text, err=True)
