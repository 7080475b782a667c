"""``make scale``: measures a reader with many partitions and with a long backlog, and whether it keeps up."""

import tempfile
from pathlib import Path

import click

from benchmarks.scaling.reader import Load, backlog, busy, cost_text, read
from emulator.scenario.history import PartitionMode

_MODES = ("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")


@click.command()
@click.argument("what", nargs=-1, type=click.Choice(["busy", "idle", "backlog"]))
@click.option("--mode", type=click.Choice(_MODES), default=_MODES[0], show_default=True)
@click.option("--executors", "on_executors", is_flag=True, help="Let Spark's executors read the busy partitions.")
@click.option("--partitions", default=5000, show_default=True, help="How many are busy.")
@click.option("--seconds", default=180.0, show_default=True, help="How long the busy and the idle partitions are read.")
def main(what: tuple[str, ...], mode: PartitionMode, seconds: float, partitions: int, *, on_executors: bool) -> None:
    """Measures 5,000 busy partitions (20 % split per minute), 10,000 idle ones, and 1,000,000 mods of backlog."""
    if on_executors:
        from benchmarks.scaling import executors  # PySpark is needed for nothing else here

        with tempfile.TemporaryDirectory() as folder:
            click.echo(executors.report(executors.read(busy(partitions, seconds, mode), Path(folder))))
        return
    chosen = what or ("busy", "idle", "backlog")
    loads = {
        "busy": (busy(partitions, seconds, mode), "1s", None),
        "idle": (Load(10_000, seconds + 60, mode=mode), "10s", seconds),
        "backlog": (backlog(1_000_000, mode), "1s", None),
    }
    for name in chosen:
        load, heartbeat, stop_after = loads[name]
        with tempfile.TemporaryDirectory() as folder:
            click.echo(cost_text(name, read(load, Path(folder), heartbeat=heartbeat, stop_after=stop_after)))


if __name__ == "__main__":
    main()
