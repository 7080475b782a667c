"""Scenarios of the scripted server, and what `tail` prints of them as OpenCDC records."""

import asyncio
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager

import connector.reader.tail
from connector.config import validated
from connector.core.position import Position
from connector.core.timestamps import SECOND
from connector.reader.stopping import StopRequest
from emulator import Scenario, ScriptedServer
from tests.connector.envelope.conduit import ConduitRecord, of_json
from tests.peers.served import source


@contextmanager
def drawn(seed: int, **settings: object) -> Iterator[ScriptedServer]:
    """Serves a scenario whose time has passed."""
    generated = Scenario.generate(seed, origin=time.time_ns() - 90 * SECOND, seconds=60, **settings)  # type: ignore[arg-type]
    with ScriptedServer.started(generated, begins=time.time_ns()) as server:
        yield server


def records_of(out: bytes) -> list[ConduitRecord]:
    """Returns the printed records, without the time of reading."""
    found = []
    for line in out.splitlines():
        record = of_json(line)
        assert record.metadata.pop("opencdc.readAt").isdecimal()
        found.append(record)
    return found


def records_after(
    server: ScriptedServer, position: Position | None = None, *, timeout: float = 300
) -> list[ConduitRecord]:
    """Returns what `tail` prints after a position, or from the start."""
    start = server.engine.scenario.history.origin if position is None else position.commit_timestamp
    config = validated({"source": source(server, start=start), "envelope": {"format": "opencdc"}})
    out, stop = io.BytesIO(), StopRequest(drain_timeout=config.drain_timeout)
    work = connector.reader.tail.tail(config.source, config.envelope, out, stop, after=position)
    asyncio.run(asyncio.wait_for(work, timeout))
    return records_of(out.getvalue())
