"""The start of a spool is decided by one function, so that `check` refuses what the daemon refuses, in its words."""

import asyncio
from pathlib import Path

import pytest

from connector.check.findings import findings_of
from connector.check.needs import NEEDS
from connector.config import Config, validated
from connector.core.timestamps import format_rfc3339
from connector.daemon.read import read
from connector.errors import ConfigurationError
from connector.reader.change_stream import opened
from connector.reader.stopping import StopRequest
from connector.spool.backfill.records import record
from connector.spool.reading import Spool
from connector.spool.writing import initialize
from emulator import ScriptedServer
from tests.connector.spanner.snapshot.scripted import dialect_of, middle, serving, source_of


def config_of(server: ScriptedServer, folder: Path, **source: object) -> Config:
    given = source_of(server).model_dump(include={"project", "instance", "database", "change_stream", "emulator_host"})
    node = {**given, **source}
    return validated({"source": node, "spool": {"path": str(folder)}, "status": {"port": 0}})


async def with_backfill(config: Config, server: ScriptedServer, folder: Path) -> None:
    """A spool without epochs that has a backfill, and begins in the middle of the server's history."""
    at = middle(server) // 1000 * 1000
    async with opened(config.source) as stream:
        tables = list(stream.stream.tables)
    spool = Spool.at(folder)
    header = initialize(spool, config.source.name, at + 1, "now", tables, default_schema="d")
    dialect = dialect_of(server).name
    record(spool, header, tables, after=0, timestamp=lambda: at, why="start", dialect=dialect, now=at)


def test_another_start_than_the_backfills_is_an_error_of_check_and_of_the_daemon(tmp_path: Path) -> None:
    with serving() as server:
        config = config_of(server, tmp_path, start=format_rfc3339(middle(server) + 10**9))
        asyncio.run(with_backfill(config, server, tmp_path))
        found = asyncio.run(findings_of(config, needs=NEEDS["read"]))
        with pytest.raises(ConfigurationError) as refused:
            asyncio.run(read(config, StopRequest(drain_timeout=0)))
    assert found.errors == refused.value.errors
    assert "has a backfill, which the changes from" in found.errors[0]
