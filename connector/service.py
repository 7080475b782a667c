"""``spanner-cdc run``: the daemon and the Spark sink of a configuration, as one service.

The sink is a process of its own, ``python -m spark_sink CONFIG``, so that Spark's threads and the reader's do not
share an interpreter. Its standard input is its lifeline: when it ends, whether by us or because we were killed, the
sink delivers what is sealed and ends too.
"""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path

from connector.config import Config
from connector.daemon import read
from connector.errors import SpannerCdcError
from connector.log import Log
from connector.stopping import Stop
from connector.timestamps import SECOND

EMULATOR_HOST = "SPANNER_EMULATOR_HOST"

_log = Log(__name__)


class SinkError(SpannerCdcError):
    """The Spark sink ended with an error; it has told which on stderr."""


async def run(config: Config, path: Path, stop: Stop, *, emulator_host: str | None, verbose: bool) -> None:
    """Runs both until the end is reached and the sink has it all, or until ``stop``.

    Raises:
        SpannerCdcError: one clear line, of whichever failed first.
    """
    environment = {**os.environ, **({EMULATOR_HOST: emulator_host} if emulator_host else {})}
    arguments = [sys.executable, "-m", "spark_sink", str(path), *(["--verbose"] if verbose else [])]
    # Its own session: a Ctrl-C at the terminal is ours to hand on, by the lifeline, once the daemon has drained.
    sink = await asyncio.create_subprocess_exec(
        *arguments, stdin=asyncio.subprocess.PIPE, env=environment, start_new_session=True
    )
    ended = asyncio.create_task(sink.wait(), name="sink")
    reading = asyncio.create_task(read(config, stop, emulator_host=emulator_host), name="daemon")
    try:
        await asyncio.wait({ended, reading}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            stop.ask()
        elif reading.exception() is None:
            _log.info("the daemon is done; the sink delivers what is left")
        await reading
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            sink.kill()
        raise
    finally:
        assert sink.stdin is not None
        sink.stdin.close()
        await _ended(sink, ended, stop, drain=config.drain_timeout / SECOND)
    if ended.result() != 0:
        raise SinkError(f"the Spark sink ended with code {ended.result()}", hint="Its own line above says why.")


async def _ended(sink: Process, ended: asyncio.Task[int], stop: Stop, *, drain: float) -> None:
    """Waits for the sink, whose lifeline is cut; ``drain`` seconds after a stop only for the batch under way."""
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({ended}, timeout=drain)
        if not ended.done():
            _log.warning("the sink's drain took too long; what is not delivered is delivered next time")
            with suppress(ProcessLookupError):
                sink.terminate()
            await asyncio.wait({ended}, timeout=drain)
    finally:
        stopping.cancel()
        if not ended.done():
            with suppress(ProcessLookupError):
                sink.kill()
    await ended
