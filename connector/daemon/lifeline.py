"""A process that ends when its parent does: its standard input is a pipe, whose end asks for a drain."""

import os
import sys
import threading
from asyncio import get_running_loop
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from connector.reader.stopping import StopRequest


@asynccontextmanager
async def ended_with_stdin(stop: StopRequest, *, wanted: bool) -> AsyncIterator[None]:
    """Asks ``stop`` for a drain when standard input ends, if that is wanted."""
    if wanted:
        loop = get_running_loop()

        def watch() -> None:
            with suppress(OSError):
                while os.read(sys.stdin.fileno(), 4096):
                    pass
            with suppress(RuntimeError):  # the event loop has ended first
                loop.call_soon_threadsafe(stop.request)

        # A read of a pipe cannot be cancelled, so that nothing waits for this thread.
        threading.Thread(target=watch, name="lifeline", daemon=True).start()
    yield
