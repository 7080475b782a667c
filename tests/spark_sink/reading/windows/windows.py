"""Serves histories to readers on executors, and reads what they have sealed."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from connector.config.loading import Config, load
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.read import MakesRangeReader, read
from connector.reader.placements.vanished import STEP
from connector.reader.stopping import StopRequest
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from emulator import Scenario, ScriptedServer
from emulator.scenario.history import Change, PartitionMode
from emulator.scenario.placements import Placement
from emulator.workload.tables import Dialect

SECONDS = 20


@contextmanager
def served(
    *,
    mode: PartitionMode = "IMMUTABLE_KEY_RANGE",
    dialect: Dialect = "googlesql",
    unknown: int = 0,
    transactions: int = 200,
    ago: float = SECONDS + 30,
    placements: int = 0,
) -> Iterator[tuple[Scenario, ScriptedServer]]:
    """Serves a history that began some seconds ago, and lasts :data:`SECONDS`."""
    scenario = Scenario.generate(
        11,
        origin=time.time_ns() - int(ago * SECOND),
        seconds=SECONDS,
        mode=mode,
        dialect=dialect,
        value_capture_type="NEW_ROW_AND_OLD_VALUES",
        transactions=transactions,
        churn=20,
        schema_change=False,
        placements=placements,
    )
    scenario = replace(scenario, tables=scenario.tables[unknown:])  # the first are created while it is read
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        yield scenario, server


def brief_placement(origin: int) -> tuple[Scenario, Placement]:
    """Returns a history in which a placement gets rows and is emptied, which no two lists of the past enclose."""
    for seed in range(51, 99):
        scenario = Scenario.generate(
            seed,
            origin=origin,
            seconds=40,
            mode="MUTABLE_KEY_RANGE",
            dialect="googlesql",
            transactions=300,
            churn=30,
            placements=4,
        )
        with_records = {
            partition.placement
            for partition in scenario.history.partitions.values()
            if any(isinstance(event, Change) for event in partition.events)
        }
        for one in scenario.placements.each if scenario.placements else ():
            lives = one.emptied - one.created if one.emptied else 0
            if lives > STEP + SECOND and one.created > origin + 5 * SECOND and one.name in with_records:
                return scenario, one
    raise AssertionError("no seed has such a placement")


def configured(folder: Path, scenario: Scenario, server: ScriptedServer, **source: object) -> Config:
    folder.mkdir(exist_ok=True)
    node = {
        "source": {
            "project": scenario.project,
            "instance": scenario.instance,
            "database": scenario.database,
            "change_stream": scenario.change_stream,
            "emulator_host": server.host,
            "start": format_rfc3339(scenario.history.origin),
            "end": format_rfc3339(scenario.history.horizon),
            **source,
        },
        "spool": {"path": str(folder / "spool")},
        "status": {"port": 0},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(node))
    return load(folder / "config.yaml")


def done(config: Config, reader: MakesRangeReader) -> list[dict[str, Any]]:
    """Reads to the end; returns all events of the spool."""
    asyncio.run(read(config, StopRequest(drain_timeout=60 * SECOND), range_reader=reader))
    return events(config)


def events(config: Config) -> list[dict[str, Any]]:
    """Returns all events of the spool, without what differs between readers."""
    spool = Spool.at(config.spool.path)
    return [
        {**row, "read_timestamp": None, "epoch": None, "payload": json.loads(row["payload"])}
        for manifest in manifests(config)
        for file in manifest.files
        for batch in spool.batches(file)
        for row in batch.to_pylist()
    ]


def manifests(config: Config) -> list[Manifest]:
    spool = Spool.at(config.spool.path)
    return list(spool.manifests(1, spool.latest()))
