"""`python -m emulator start`, `scripted` and `workload`: an emulator, a scripted server, or commits until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

import click
from google.api_core.exceptions import GoogleAPIError

from emulator.errors import EmulatorFailedError, EmulatorNotFoundError
from emulator.official.launcher import find_or_start
from emulator.scenario.history import PartitionMode
from emulator.scenario.placements import MOST_PLACEMENTS
from emulator.scenario.scenario import Scenario
from emulator.scripted.fault_plan import FaultPlan
from emulator.scripted.server import ScriptedServer
from emulator.workload.sample import SampleDatabase
from emulator.workload.tables import Dialect
from emulator.workload.workload import Workload


@click.group()
def main() -> None:
    """Runs the official Spanner emulator, a scripted Spanner server, or a workload."""


@main.command()
@click.option(
    "--churn-seconds",
    type=click.IntRange(min=1),
    help="How long a change stream partition lasts, up to twice that; 20 if not given.",
)
def start(churn_seconds: int | None) -> None:
    """Finds or starts an emulator, prints SPANNER_EMULATOR_HOST=HOST:PORT, and runs it until Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with find_or_start(churn_seconds=churn_seconds) as emulator:
            click.echo(f"SPANNER_EMULATOR_HOST={emulator.host}")
            _run_until_interrupted(emulator.origin)
    except KeyboardInterrupt:
        return
    except (EmulatorNotFoundError, EmulatorFailedError) as error:
        click.echo(f"emulator: {error}", err=True)
        sys.exit(1)


@main.command()
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of the scenario.")
@click.option(
    "--seconds", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="The length of the scenario."
)
@click.option("--dialect", type=click.Choice(["googlesql", "postgresql"]), help="Drawn from the seed if not given.")
@click.option(
    "--mode", type=click.Choice(["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"]), help="Drawn from the seed if not given."
)
@click.option(
    "--faults/--no-faults",
    default=False,
    show_default=True,
    help="Inject faults into queries, drawn from the same seed.",
)
@click.option(
    "--placements",
    type=click.IntRange(0, MOST_PLACEMENTS),
    default=0,
    show_default=True,
    help="Placements beside the default one, each with a read function; in the MUTABLE_KEY_RANGE mode.",
)
def scripted(
    seed: int, seconds: float, dialect: Dialect | None, mode: PartitionMode | None, placements: int, *, faults: bool
) -> None:
    """Serves a scenario that starts now, prints its address and names as NAME=VALUE, and runs until Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        scenario = Scenario.generate(
            seed, origin=time.time_ns(), seconds=seconds, dialect=dialect, mode=mode, placements=placements
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        with ScriptedServer.started(scenario, faults=FaultPlan(seed) if faults else None) as server:
            click.echo(f"SPANNER_EMULATOR_HOST={server.host}")
            for name in ("project", "instance", "database", "change_stream"):
                click.echo(f"{name}={getattr(scenario, name)}")
            _run_until_interrupted(f"{scenario.dialect}, {scenario.mode}")
    except KeyboardInterrupt:
        return


@main.command()
@click.option("--database", default="sample", show_default=True, help="The database to create.")
@click.option("--rate", type=click.FloatRange(min=0.1), default=20.0, show_default=True, help="Mods a second.")
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of the workload.")
def workload(database: str, rate: float, seed: int) -> None:
    """Creates a database with a change stream in an emulator, prints its names, and commits to it until Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with find_or_start() as emulator:
            sample = SampleDatabase.create(emulator.host, database_id=database)
            click.echo(f"SPANNER_EMULATOR_HOST={emulator.host}")
            for name, value in (("project", sample.project), ("instance", sample.instance), ("database", database)):
                click.echo(f"{name}={value}")
            click.echo(f"change_stream={sample.change_stream}")
            click.echo(f"committing {rate:g} mods a second; Ctrl-C ends it", err=True)
            Workload(sample, seed=seed).run(rate=rate, stop=threading.Event())
    except KeyboardInterrupt:
        return
    except (EmulatorNotFoundError, EmulatorFailedError, GoogleAPIError) as error:
        click.echo(f"emulator: {' '.join(str(error).split())}", err=True)
        sys.exit(1)


def _run_until_interrupted(what: str) -> NoReturn:
    """Prints what is running, and waits for the interrupt that ends it."""
    click.echo(f"running ({what}); Ctrl-C ends it", err=True)
    while True:
        time.sleep(1)  # signal.pause() would wait for ever if the signal came just before it


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(prog_name="python -m emulator")
