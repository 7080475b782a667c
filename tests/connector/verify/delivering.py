"""Reads a sample database into files as the file sink writes them, without Spark."""

import asyncio
import time
from pathlib import Path

import connector
from connector.core.timestamps import format_rfc3339
from connector.spool.consumers import record
from connector.spool.reading import Spool
from emulator import SampleDatabase
from spark_sink.files.config import CONSUMER
from spark_sink.files.plan import FileOptions, file_groups
from spark_sink.files.writer import FileWriter
from spark_sink.sink.dead_letters import DeadLetters
from spark_sink.sink.destination import destination_at
from tests.integration.commands import configuration

_AT_ONCE = FileOptions(gzip=False, rotate_bytes=250_000_000, by_minute=False)


def delivered(folder: Path, sample: SampleDatabase, first: int, last: int) -> Path:
    """Reads what was committed from ``first`` to ``last``, in nanoseconds, and writes it; returns the configuration."""
    span = {"start": format_rfc3339(first), "end": format_rfc3339(last)}
    config = configuration(folder, sample, source=span, sink={"path": str(folder / "events"), "gzip": False})
    asyncio.run(connector.read(connector.load_config(config)))
    spool = Spool.at(folder / "spool")
    latest = spool.latest()
    writer = FileWriter(
        spool,
        spool.header().spool_id,
        destination_at(str(folder / "events")),
        _AT_ONCE,
        DeadLetters(str(folder / "dead-letters")),
    )
    for group in file_groups(spool.manifests(1, latest), by_minute=False):
        for _ in writer.write(group):
            pass
    record(spool, CONSUMER, latest, now=time.time_ns(), at=spool.manifest(latest).identity)
    return config


def files(folder: Path) -> list[Path]:
    """The files of events."""
    return sorted((folder / "events").rglob("*.jsonl"))
