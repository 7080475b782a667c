"""On the official emulator a row of a snapshot is the same as the row that a change stream reports of its INSERT."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

import connector
from connector.config import SourceConfig
from connector.core.dialects import DIALECTS
from connector.core.schemas import TableSchema
from connector.core.timestamps import format_rfc3339
from connector.errors import NoSuchTableError, SnapshotLostError
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import change_streams, current_timestamp, dialect_of
from connector.spanner.snapshot.partitions import Snapshot
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_keys, read_partition
from emulator import SampleDatabase, Workload
from tests.integration.servers import database, emulator

pytestmark = pytest.mark.emulator

__all__ = ["database", "emulator"]

_DIALECTS = {dialect.name: dialect for dialect in DIALECTS.values()}
Rows = dict[tuple[str, str], dict[str, Any]]
"""By table and key, in JSON."""


def settings(sample: SampleDatabase, **more: str) -> dict[str, object]:
    return {
        "project": sample.project,
        "instance": sample.instance,
        "database": sample.database_id,
        "change_stream": sample.change_stream,
        "emulator_host": sample.host,
        **more,
    }


async def described(source: SourceConfig) -> tuple[int, tuple[TableSchema, ...]]:
    """Spanner's clock, and the watched tables."""
    async with SpannerClient(source.address).connected() as client:
        (stream,) = await change_streams(client, await dialect_of(client))
        return await current_timestamp(client), stream.tables


async def streamed(sample: SampleDatabase, start: int, end: int) -> Rows:
    """Every row as the change stream reports it last, deleted ones omitted; values as Spanner sends them."""
    config = connector.load_config(
        {
            "source": settings(sample, start=format_rfc3339(start), end=format_rfc3339(end)),
            "spool": {"path": "./unused"},
        }
    )
    rows: Rows = {}
    async with connector.read_epochs(config) as epochs:
        async for epoch in epochs:
            for row in epoch.table().to_pylist():
                payload = orjson.loads(row["payload"])
                key = row["object"], orjson.dumps([payload[k] for k in row["source_metadata"]["primary_keys"]]).decode()
                if row["source_metadata"]["is_deleted"]:
                    rows.pop(key, None)
                else:
                    rows[key] = payload
    return rows


def snapshot(source: SourceConfig, tables: tuple[TableSchema, ...], dialect: str, at: int) -> Rows:
    rows: Rows = {}
    with Snapshot.open(source.address, at) as opened:
        for table in tables:
            names = tuple(column.name for column in table.columns)
            query = TableQuery(table.table, names)
            found = opened.partitions(query, _DIALECTS[dialect])
            assert [column.type for column in found[0].columns] == [column.type for column in table.columns]
            for partition in found:
                for block in read_partition(source.address, partition):
                    assert block.typed().num_rows == block.rows
                    texts = block.payloads(names).to_pylist()
                    for row in map(orjson.loads, texts):
                        rows[table.table, orjson.dumps([row[key] for key in table.primary_keys]).decode()] = row
                    keys = block.payloads(table.primary_keys)
                    again = read_keys(source.address, query, keys, table.primary_keys, at)
                    assert sorted(text for one in again for text in one.payloads(names).to_pylist()) == sorted(texts)
    return rows


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_a_snapshot_has_the_values_of_the_inserts_of_a_change_stream(
    database: Callable[..., SampleDatabase], dialect: str
) -> None:
    sample = database(dialect=dialect, value_capture_type="NEW_ROW")
    source = SourceConfig.model_validate(settings(sample))
    start, tables = asyncio.run(described(source))
    Workload(sample, seed=11, average_size=6.0).run(mods=250)
    at, _ = asyncio.run(described(source))
    found, expected = snapshot(source, tables, dialect, at), asyncio.run(streamed(sample, start, at))
    assert found == expected
    assert len({table for table, _ in found}) == len(tables)
    assert snapshot(source, tables, dialect, start) == {}


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_what_cannot_be_read_again_is_one_clear_line(database: Callable[..., SampleDatabase], dialect: str) -> None:
    sample = database(dialect=dialect)
    source = SourceConfig.model_validate(settings(sample))
    at, _ = asyncio.run(described(source))
    with Snapshot.open(source.address, at) as opened:
        found = opened.partitions(TableQuery("Order"), _DIALECTS[dialect])
        assert [column.name for column in opened.columns(TableQuery("Singers"), _DIALECTS[dialect])][-1] == "FullName"
    lost = replace(found[0], session=f"{found[0].session}0")
    with pytest.raises(SnapshotLostError):
        list(read_partition(source.address, lost))
    other = replace(found[0], token=b"nonsense")
    with pytest.raises(SnapshotLostError):
        list(read_partition(source.address, other))


def test_a_hidden_column_is_found_beside_one_that_the_table_did_not_have(
    database: Callable[..., SampleDatabase],
) -> None:
    sample = database()
    sample.run_ddl("CREATE TABLE U (Id INT64, H STRING(MAX) HIDDEN, Name STRING(MAX)) PRIMARY KEY (Id)")
    source = SourceConfig.model_validate(settings(sample))
    at, _ = asyncio.run(described(source))
    dialect = _DIALECTS["googlesql"]
    with Snapshot.open(source.address, at) as opened:
        assert [column.name for column in opened.columns(TableQuery("U"), dialect)] == ["Id", "Name"]
        for names in (["Id", "H"], ["Id", "Later", "H"]):
            assert [column.name for column in opened.existing("U", names, dialect)] == ["Id", "H"]
        with pytest.raises(NoSuchTableError):
            opened.existing("V", ["Id"], dialect)
