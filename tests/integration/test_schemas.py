"""Keys and types from the official emulator's INFORMATION_SCHEMA reach the spool."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from connector.core.dialects import DIALECTS
from connector.core.schemas import TableSchema
from connector.core.timestamps import format_rfc3339
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import find_change_stream
from connector.spool.reading import Spool
from emulator import SampleDatabase
from tests.connector.builders import address_of
from tests.integration.commands import configuration, reading
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator

LATER = {
    "googlesql": "CREATE TABLE Later (a INT64, b STRING(20), c STRING(MAX)) PRIMARY KEY (b, a)",
    "postgresql": 'CREATE TABLE "Later" (a bigint, b varchar(20), c varchar, PRIMARY KEY (b, a))',
}
VECTORS = {
    "googlesql": (
        "CREATE TABLE Vectors (Id INT64, V ARRAY<FLOAT32>(vector_length=>2), W ARRAY<FLOAT64>(vector_length=>3),"
        " S ARRAY<STRING(10)>) PRIMARY KEY (Id)"
    ),
    "postgresql": (
        'CREATE TABLE "Vectors" ("Id" bigint PRIMARY KEY, "V" real[] vector length 2,'
        ' "W" double precision[] vector length 3, "S" varchar(10)[])'
    ),
}


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_the_key_of_a_table_that_is_made_while_the_stream_is_read_has_its_declared_order(
    dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect)
    config = configuration(tmp_path, sample, source={"start": format_rfc3339(time.time_ns())})
    spool = Spool.at(tmp_path / "spool")
    with reading(config) as daemon:
        sample.run_ddl(LATER[dialect])
        with sample.database.batch() as batch:
            batch.insert("Later", ("a", "b", "c"), [(1, "x", "y")])
        daemon.until(lambda: "Later" in known(spool), "the row is sealed")
        assert daemon.stop().code == 0
        assert "WARNING" not in daemon.said
    schema = spool.schema(known(spool)["Later"])
    assert schema.primary_keys == ("b", "a")
    assert [column.name for column in schema.columns] == ["a", "b", "c"]


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_vector_columns_are_discovered(dialect: str, database: MakeDatabase) -> None:
    sample = database(dialect=dialect)
    sample.run_ddl(VECTORS[dialect])
    table = asyncio.run(discovered(sample, "Vectors"))
    assert [(column.name, json.loads(column.type)["array_element_type"]["code"]) for column in table.columns[1:]] == [
        ("V", "FLOAT32"),
        ("W", "FLOAT64"),
        ("S", "STRING"),
    ]


def known(spool: Spool) -> dict[str, str]:
    """The tables of the newest epoch, which may be an empty one, with the keys of their schemas."""
    return spool.manifest(spool.latest()).schema_keys if spool.latest() else {}


async def discovered(sample: SampleDatabase, name: str) -> TableSchema:
    dialect = DIALECTS["POSTGRESQL" if sample.dialect == "postgresql" else "GOOGLE_STANDARD_SQL"]
    client = SpannerClient(address_of(sample.path, sample.host))
    async with client.connected():
        stream = await find_change_stream(client, dialect, sample.change_stream)
    return next(table for table in stream.tables if table.table == name)


GENERATED = {
    "googlesql": (
        "CREATE TABLE Made (Id INT64 NOT NULL, First STRING(20), Shard INT64 NOT NULL AS (MOD(Id, 4)) STORED,"
        " Upper STRING(20) AS (UPPER(First)) STORED, Lower STRING(20) AS (LOWER(First))) PRIMARY KEY (Shard, Id)"
    ),
    "postgresql": (
        'CREATE TABLE "Made" ("Id" bigint NOT NULL, "First" varchar(20),'
        ' "Shard" bigint GENERATED ALWAYS AS (MOD("Id", 4::bigint)) STORED NOT NULL,'
        ' "Upper" varchar(20) GENERATED ALWAYS AS (UPPER("First")) STORED,'
        ' "Lower" varchar(20) GENERATED ALWAYS AS (LOWER("First")) VIRTUAL, PRIMARY KEY ("Shard", "Id"))'
    ),
}


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_a_generated_column_is_in_events_only_if_it_is_of_the_key(
    dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect)
    sample.run_ddl(GENERATED[dialect])
    config = configuration(tmp_path, sample, source={"start": format_rfc3339(time.time_ns())})
    spool = Spool.at(tmp_path / "spool")
    with reading(config) as daemon:
        with sample.database.batch() as batch:
            batch.insert("Made", ("Id", "First"), [(7, "Nina")])
        daemon.until(lambda: rows_of(spool, "Made") != [], "the row is sealed")
        assert daemon.stop().code == 0
    schema = spool.schema(known(spool)["Made"])
    assert schema.primary_keys == ("Shard", "Id")
    assert {column.name for column in schema.columns} == {"Id", "First", "Shard"}
    assert rows_of(spool, "Made") == [{"Shard": "3", "Id": "7", "First": "Nina"}]


def rows_of(spool: Spool, table: str) -> list[object]:
    """The payloads of a table's events."""
    return [
        json.loads(row["payload"])
        for manifest in spool.manifests(1, spool.latest() if known(spool) else 0)
        for file in manifest.files
        for batch in spool.batches(file)
        for row in batch.to_pylist()
        if row["object"] == table
    ]
