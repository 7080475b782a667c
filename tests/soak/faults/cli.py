"""``python -m tests.soak.faults.cli``: the command ``spanner-cdc`` with the faults in its environment."""

import asyncio
import os
from signal import SIGKILL
from typing import Any

from connector import cli
from tests.soak.faults import patches
from tests.soak.faults.process_faults import Points, ProcessFaults

_REPLACED = {"spark_sink": "tests.soak.faults.sink", "connector.spanner.workers.worker": "tests.soak.faults.reader"}
"""Modules that the daemon starts as processes, and the modules that replace them."""


def die() -> None:
    os.kill(os.getpid(), SIGKILL)


def main() -> None:
    faults = ProcessFaults.of_environment()
    points = Points(faults, die)
    patches.set_clock(faults)
    patches.inject_disk_faults(faults, full_at=faults.full_at, name=patches.FULL)
    patches.fill_spool(faults)
    patches.kill_in_storage(points)
    patches.kill_in_writer(points, prunes=faults.prunes)
    patches.hurry()
    patches.decode_as_columns(faults)
    patches.write_cut_files(faults)
    start = asyncio.create_subprocess_exec

    async def start_replaced(*arguments: str, **options: Any) -> Any:
        return await start(*(_REPLACED.get(argument, argument) for argument in arguments), **options)

    asyncio.create_subprocess_exec = start_replaced  # type: ignore[assignment]
    cli.main()


if __name__ == "__main__":
    main()
