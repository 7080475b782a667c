"""``python -m tests.soak.faults.cli``: the command ``spanner-cdc``, with what the environment says befalling it."""

import asyncio
import os
from signal import SIGKILL
from typing import Any

from connector import cli
from tests.soak.faults import patches
from tests.soak.faults.fault import Points, Trouble

_TROUBLED = {"spark_sink": "tests.soak.faults.sink", "connector.workers.worker": "tests.soak.faults.reader"}
"""Modules that the daemon runs as processes, and those that take their place."""


def die() -> None:
    os.kill(os.getpid(), SIGKILL)


def main() -> None:
    trouble = Trouble.of_environment()
    points = Points(trouble, die)
    patches.set_clock(trouble)
    patches.trouble_disk(trouble, full_at=trouble.full_at, name=patches.FULL)
    patches.kill_in_storage(points)
    patches.kill_in_writer(points, prunes=trouble.prunes)
    patches.hurry()
    patches.take_columns(trouble)
    patches.take_cut_files(trouble)
    start = asyncio.create_subprocess_exec

    async def start_troubled(*arguments: str, **options: Any) -> Any:
        return await start(*(_TROUBLED.get(argument, argument) for argument in arguments), **options)

    asyncio.create_subprocess_exec = start_troubled  # type: ignore[assignment]
    cli.main()


if __name__ == "__main__":
    main()
