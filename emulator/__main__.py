"""`python -m emulator start`: an emulator to work with by hand, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import click

from emulator.faults import EmulatorFailedError, EmulatorNotFoundError
from emulator.launcher import find_or_start


@click.group()
def main() -> None:
    """Work with the official Spanner emulator."""


@main.command()
@click.option("--churn-seconds", type=click.IntRange(min=1), help="How long change stream partitions live.")
def start(churn_seconds: int | None) -> None:
    """Print an emulator's address as SPANNER_EMULATOR_HOST=HOST:PORT and keep it until Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with find_or_start(churn_seconds=churn_seconds) as emulator:
            click.echo(f"SPANNER_EMULATOR_HOST={emulator.host}")
            click.echo(f"running ({emulator.origin}); Ctrl-C ends it", err=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return
    except (EmulatorNotFoundError, EmulatorFailedError) as error:
        click.echo(f"emulator: {error}", err=True)
        sys.exit(1)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(prog_name="python -m emulator")
