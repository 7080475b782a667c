"""A scripted Spanner whose tables have rows, and how to read them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from connector.config import SourceConfig
from connector.core.dialects import GOOGLESQL, POSTGRESQL, Dialect
from connector.core.timestamps import SECOND
from connector.spanner.snapshot.partitions import Snapshot, SnapshotPartition
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_partition
from connector.spanner.snapshot.row_block import RowBlock
from emulator import FaultPlan, Scenario, ScriptedServer
from emulator.scenario.contents_at import contents_at
from emulator.scripted.framing import Framing

TABLE = "AllTypes"
"""The table that most tests read."""


@contextmanager
def serving(
    *,
    seed: int = 7,
    dialect: str = "googlesql",
    faults: FaultPlan | None = None,
    framing: Framing | None = None,
    transactions: int = 200,
) -> Iterator[ScriptedServer]:
    """A server with a history that ended ten seconds ago."""
    now = time.time_ns()
    scenario = Scenario.generate(
        seed,
        origin=now - 40 * SECOND,
        seconds=30,
        dialect="googlesql" if dialect == "googlesql" else "postgresql",
        mode="IMMUTABLE_KEY_RANGE",
        transactions=transactions,
    )
    with ScriptedServer.started(scenario, begins=now, faults=faults, framing=framing) as server:
        yield server


def middle(server: ScriptedServer) -> int:
    """A timestamp in the middle of the history."""
    history = server.engine.scenario.history
    return (history.origin + history.horizon) // 2


def source_of(server: ScriptedServer) -> SourceConfig:
    scenario = server.engine.scenario
    return SourceConfig(
        project=scenario.project,
        instance=scenario.instance,
        database=scenario.database,
        change_stream=scenario.change_stream,
        emulator_host=server.host,
    )


def dialect_of(server: ScriptedServer) -> Dialect:
    return GOOGLESQL if server.engine.scenario.dialect == "googlesql" else POSTGRESQL


def partitions(server: ScriptedServer, query: TableQuery, timestamp: int) -> list[SnapshotPartition]:
    """Divides a query into partitions."""
    with Snapshot.open(source_of(server).address, timestamp) as snapshot:
        return snapshot.partitions(query, dialect_of(server))


def rows_of(block: RowBlock) -> list[dict[str, Any]]:
    """The rows of a block, as dicts of JSON values."""
    names = [column.name for column in block.columns]
    return [orjson.loads(text) for text in block.payloads(names).to_pylist()]


def read(server: ScriptedServer, found: list[SnapshotPartition]) -> list[dict[str, Any]]:
    """The rows of partitions, in order."""
    blocks = [block for one in found for block in read_partition(source_of(server).address, one)]
    return [row for block in blocks for row in rows_of(block)]


def contents(server: ScriptedServer, table: str, timestamp: int) -> list[dict[str, Any]]:
    """The rows that the server has, with all columns."""
    scenario = server.engine.scenario
    (columns,) = [[column.name for column in one.columns] for one in scenario.tables if one.name == table]
    return [{name: row.get(name) for name in columns} for row in contents_at(scenario, timestamp)[table]]
