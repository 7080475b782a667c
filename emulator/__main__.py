"""`python -m emulator start` and `scripted`: an emulator or a scripted server to work with by hand, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import NoReturn

import click

from emulator.errors import EmulatorFailedError, EmulatorNotFoundError
from emulator.official.launcher import find_or_start
from emulator.scenario.history import PartitionMode
from emulator.scenario.scenario import Scenario
from emulator.scripted.fault_plan import FaultPlan
from emulator.scripted.server import ScriptedServer
from emulator.workload.tables import Dialect


@click.group()
def main() -> None:
    """Work with the official Spanner emulator, or with a scripted one."""


@main.command()
@click.option("--churn-seconds", type=click.IntRange(min=1), help="How long change stream partitions live.")
def start(churn_seconds: int | None) -> None:
    """Print an emulator's address as SPANNER_EMULATOR_HOST=HOST:PORT and keep it until Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with find_or_start(churn_seconds=churn_seconds) as emulator:
            click.echo(f"SPANNER_EMULATOR_HOST={emulator.host}")
            _stay(emulator.origin)
    except KeyboardInterrupt:
        return
    except (EmulatorNotFoundError, EmulatorFailedError) as error:
        click.echo(f"emulator: {error}", err=True)
        sys.exit(1)


@main.command()
@click.option("--seed", type=int, default=0, show_default=True, help="What the scenario is drawn from.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="How long it lasts.")
@click.option("--dialect", type=click.Choice(["googlesql", "postgresql"]), help="Drawn if not given.")
@click.option("--mode", type=click.Choice(["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"]), help="Drawn if not given.")
@click.option("--faults/--no-faults", default=False, show_default=True, help="Let queries break, by the same seed.")
def scripted(seed: int, seconds: float, dialect: Dialect | None, mode: PartitionMode | None, *, faults: bool) -> None:
    """Serve a scenario that begins now; print its address and its names as NAME=VALUE, and keep it until Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    told = Scenario.generate(seed, origin=time.time_ns(), seconds=seconds, dialect=dialect, mode=mode)
    try:
        with ScriptedServer.started(told, faults=FaultPlan(seed) if faults else None) as server:
            click.echo(f"SPANNER_EMULATOR_HOST={server.host}")
            for name in ("project", "instance", "database", "change_stream"):
                click.echo(f"{name}={getattr(told, name)}")
            _stay(f"{told.dialect}, {told.mode}")
    except KeyboardInterrupt:
        return


def _stay(what: str) -> NoReturn:
    """Tell what is running, and wait for the interrupt that ends it."""
    click.echo(f"running ({what}); Ctrl-C ends it", err=True)
    while True:
        signal.pause()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(prog_name="python -m emulator")
