"""Runs the command ``spanner-cdc`` and writes the calls from its entry point to the main loop into a file, as JSON.

Run as ``python -m tests.connector.reader.traced_read FILE read CONFIG``. Only functions of the connector count: frames
of click and asyncio are skipped. A task continues the path of the code that created it.
"""

import asyncio
import json
import sys
from asyncio.base_events import BaseEventLoop
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from connector import cli
from connector.reader.scheduler import Scheduler


class Tracer:
    """Records for each task how it was created."""

    def __init__(self) -> None:
        self._created: dict[asyncio.Task[Any], list[str]] = {}
        self._create_task = BaseEventLoop.create_task
        self.path: list[str] = []

    def create_task(self, loop: BaseEventLoop, *arguments: Any, **named: Any) -> asyncio.Task[Any]:
        """Creates a task, as the event loop does."""
        task = self._create_task(loop, *arguments, **named)
        self._created[task] = self._path(loop, sys._getframe(1))
        return task

    def in_main_loop(self) -> None:
        """Records the path to the caller's caller, which is the main loop."""
        self.path = self.path or self._path(asyncio.get_running_loop(), sys._getframe(2))

    def _path(self, loop: asyncio.AbstractEventLoop, frame: FrameType | None) -> list[str]:
        calls: list[str] = []
        while frame is not None and frame.f_globals["__name__"] != "asyncio.events":
            if frame.f_globals["__name__"].split(".")[0] == "connector":
                name = frame.f_code.co_qualname.replace("<locals>.", "")
                calls.append(f"{frame.f_globals['__name__']}.{name}")
            frame = frame.f_back
        task = asyncio.current_task(loop)
        return [*(self._created[task] if task is not None else ()), *reversed(calls)]


def main() -> None:
    """Traces a command."""
    target, *sys.argv[1:] = sys.argv[1:]
    tracer = Tracer()
    move_watermark = Scheduler._move_watermark

    def traced(scheduler: Scheduler) -> None:
        tracer.in_main_loop()
        move_watermark(scheduler)

    create_task = patch.object(BaseEventLoop, "create_task", lambda *a, **named: tracer.create_task(*a, **named))
    with create_task, patch.object(Scheduler, "_move_watermark", traced):
        try:
            cli.main()
        finally:
            Path(target).write_text(json.dumps(tracer.path))


if __name__ == "__main__":
    main()
