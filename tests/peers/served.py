"""Serves a hand-made stream over real gRPC, and runs `tail` and `read` on it, in this or in another process."""

import asyncio
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import yaml

from connector.config import Config, validated
from connector.core.timestamps import format_rfc3339
from connector.daemon.read import read
from connector.errors import SpannerCdcError
from connector.reader.stopping import StopRequest
from connector.reader.tail import tail
from emulator import FaultPlan, Framing, Scenario, ScriptedServer
from emulator.scripted.server import _CallHandler
from tests.emulator.scripted.scripted_stream import ORIGIN, at
from tests.integration.commands import manifests
from tests.integration.delivered import rows

Event = dict[str, Any]


@dataclass(slots=True)
class Tailed:
    """The output of `tail`, and its error."""

    out: bytes
    error: SpannerCdcError | None = None
    events: list[Event] = field(init=False)

    def __post_init__(self) -> None:
        self.events = [json.loads(line) for line in self.out.splitlines()]

    @property
    def singers(self) -> list[int]:
        """The printed rows, in order."""
        return [event["payload"]["SingerId"] for event in self.events]

    @property
    def payloads(self) -> list[Event]:
        """The printed payloads, in order."""
        return [event["payload"] for event in self.events]


@contextmanager
def served(
    scenario: Scenario,
    *,
    now: float = 31,
    speed: float = 1.0,
    faults: FaultPlan | None = None,
    framing: Framing | None = None,
) -> Iterator[ScriptedServer]:
    """Starts a server of the stream; its clock starts `now` seconds after the origin."""
    with ScriptedServer.started(scenario, begins=at(now), speed=speed, faults=faults, framing=framing) as server:
        yield server


@dataclass(frozen=True, slots=True)
class Call:
    """A streaming call: the seconds until its deadline, None without one, and its headers."""

    deadline: float | None
    headers: dict[str, str]


def calls_to(patch: pytest.MonkeyPatch) -> list[Call]:
    """Records the streaming calls that servers of this process receive from now on."""
    noted: list[Call] = []
    answers = _CallHandler._execute_streaming_sql

    async def noting(self: _CallHandler, request: bytes, context: grpc.aio.ServicerContext) -> None:
        noted.append(Call(context.time_remaining(), dict(context.invocation_metadata())))
        await answers(self, request, context)

    patch.setattr(_CallHandler, "_execute_streaming_sql", noting)
    return noted


def source(server: ScriptedServer, *, start: int = ORIGIN, end: int | None = None, **more: object) -> dict[str, object]:
    """Returns the section `source` that reads a server's stream, by default to the history's horizon."""
    scenario = server.engine.scenario
    end = scenario.history.horizon if end is None else end
    return {
        "project": scenario.project,
        "instance": scenario.instance,
        "database": scenario.database,
        "change_stream": scenario.change_stream,
        "emulator_host": server.host,
        "start": format_rfc3339(start),
        "end": format_rfc3339(end),
        **more,
    }


def tailed(server: ScriptedServer, **more: Any) -> Tailed:
    """Runs `tail` on a stream; `more` sets the source: start and end in nanoseconds, and other options by name."""
    config, out = validated({"source": source(server, **more)}), io.BytesIO()
    try:
        asyncio.run(asyncio.wait_for(tail(config.source, config.envelope, out, _stop(config)), 300))
    except SpannerCdcError as error:
        return Tailed(out.getvalue(), error)
    return Tailed(out.getvalue())


def settings(server: ScriptedServer, spool: Path, **more: Any) -> dict[str, object]:
    """Returns a daemon's whole configuration."""
    return {
        "source": source(server, **more),
        "spool": {"path": str(spool), "seal_interval": "50ms"},
        "sink": {"path": str(spool.with_name("events"))},
        "status": {"port": 0},
    }


def written(path: Path, node: Mapping[str, object]) -> Path:
    """Writes a configuration to a file."""
    path.write_text(yaml.safe_dump(dict(node)))
    return path


def daemon_reads(server: ScriptedServer, spool: Path, *, stop_at: int | None = None, **more: Any) -> None:
    """Runs the daemon in this process, to its end or until its spool's watermark is at `stop_at`.

    Raises:
        SpannerCdcError: the daemon failed.
    """
    config = validated(settings(server, spool, **more))

    async def main() -> None:
        stop = _stop(config)
        reading = asyncio.create_task(read(config, stop))
        while stop_at is not None and not reading.done():
            sealed = manifests(spool) if (spool / "manifests").exists() else []
            if sealed and sealed[-1].watermark_high >= stop_at:
                stop.request()
                break
            await asyncio.wait({reading}, timeout=0.05)
        await asyncio.wait_for(reading, 300)

    asyncio.run(main())


def _stop(config: Config) -> StopRequest:
    return StopRequest(drain_timeout=config.drain_timeout)


def events_of_spool(spool: Path) -> list[Event]:
    """Returns every sealed row, in order."""
    return [row for manifest in manifests(spool) for row in rows(spool, manifest)]


def singers_of_spool(spool: Path) -> list[int]:
    """Returns the singer of every sealed row, in order."""
    return [int(json.loads(row["payload"])["SingerId"]) for row in events_of_spool(spool)]
