"""Reads a sample database into a spool, and delivers it as the sinks do, without Spark: into files, and BigQuery."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import connector
from connector.core.timestamps import format_rfc3339
from connector.spool.consumers import record
from connector.spool.reading import Spool
from emulator import SampleDatabase
from spark_sink.sinks.bigquery import config as bigquery_config
from spark_sink.sinks.files.config import CONSUMER
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, destination_at
from spark_sink.sinks.shared.dead_letters import DeadLetters
from tests.integration.commands import configuration
from tests.spark_sink.sinks.bigquery.deliveries.runs import SinkRun

AT_ONCE = FileOptions(gzip=False, rotate_bytes=250_000_000, by_minute=False)


def delivered(folder: Path, sample: SampleDatabase, first: int, last: int, shape: FileOptions = AT_ONCE) -> Path:
    """Reads what was committed from ``first`` to ``last``, in nanoseconds, and writes it; returns the configuration."""
    envelope, _, form = shape.format.rpartition("-")
    options = {
        "path": str(folder / "events"),
        "format": form,
        "gzip": shape.gzip,
        "timestamps": shape.timestamps,
        "arrays": shape.arrays,
        "object": shape.object_names,
    }
    config = read(folder, sample, first, last, options, envelope=envelope or "datastream")
    spool = Spool.at(folder / "spool")
    latest = spool.latest()
    writer = FileWriter(
        spool,
        spool.header().spool_id,
        destination_at(str(folder / "events")),
        shape,
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


def read(
    folder: Path,
    sample: SampleDatabase,
    first: int,
    last: int,
    sink: Mapping[str, object],
    *exclude: str,
    envelope: str = "datastream",
) -> Path:
    """Reads what was committed from ``first`` to ``last``, in nanoseconds; returns the configuration."""
    span = {"start": format_rfc3339(first), "end": format_rfc3339(last)}
    tables = {"include": ["*"], "exclude": list(exclude)}
    source = {**span, "tables": tables}
    config = configuration(folder, sample, source=source, sink=sink, envelope={"format": envelope})
    asyncio.run(connector.read(connector.load_config(config)))
    return config


def into_bigquery(config: Path) -> None:
    """Writes what is in the spool into BigQuery, with the configured sink."""
    loaded = connector.load_config(config)
    with SinkRun(loaded) as sink:
        sink.only_what_is_sealed()
        sink.run()
    spool = Spool.at(loaded.spool.path)
    latest = spool.latest()
    record(spool, bigquery_config.CONSUMER, latest, now=time.time_ns(), at=spool.manifest(latest).identity)
