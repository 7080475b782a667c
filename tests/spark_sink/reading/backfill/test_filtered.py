"""Backfills by the rules of `source.backfill`: tables, rows and tasks, and tables that come later."""

import asyncio
import threading
import time
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from connector.check.conditions import errors_of_conditions
from connector.check.starts import start_after
from connector.config import SourceConfig, validated
from connector.config.loading import load
from connector.daemon.backfill_recorder import BackfillRecorder
from connector.daemon.backfill_requests import Requests
from connector.daemon.backfills_of_run import backfill_of_new_tables
from connector.daemon.due_backfills import due_at_start
from connector.reader.change_stream import opened
from connector.spanner.versions import RowVersions
from connector.spool.backfill.documents import Backfill, BackfillProgress, TableProgress
from connector.spool.backfill.records import backfills, find, record, spool_of, write_progress
from connector.spool.reading import Spool
from connector.spool.writing import initialize, sole_writer
from emulator import SampleDatabase
from spark_sink.reading.backfill.job import ReadOptions
from spark_sink.sinks.shared.feed import Feed
from tests.connector.spool.backfill.builders import schema
from tests.integration.commands import configuration
from tests.integration.servers import MakeDatabase
from tests.spark_sink.reading.backfill.jobs import InProcessJob, _Session, payloads

pytestmark = pytest.mark.emulator


def source_of(sample: SampleDatabase, backfill: object) -> SourceConfig:
    source = {
        "project": sample.project,
        "instance": sample.instance,
        "database": sample.database_id,
        "change_stream": sample.change_stream,
        "emulator_host": sample.host,
        "backfill": backfill,
    }
    return validated({"source": source}).source


async def recorded(source: SourceConfig, spool: Spool) -> Backfill:
    async with opened(source, started=True) as stream:
        tables, start = stream.stream.tables, start_after(stream.now)
        header = initialize(spool, source.name, start, "now", tables, default_schema=source.database)
        recorder = BackfillRecorder(spool, header, stream, RowVersions("1h", {}), Requests.of(stream))
        (document,) = await asyncio.to_thread(due_at_start, recorder)
    return document


async def errors(source: SourceConfig) -> list[str]:
    async with opened(source) as stream:
        return await asyncio.to_thread(errors_of_conditions, stream)


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_only_rows_that_satisfy_the_conditions_of_tables_that_are_not_excluded_are_read(
    dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect)
    quote = '"' if dialect == "postgresql" else "`"
    where = {"Singers": f"{quote}SingerId{quote} < 3 OR {quote}FirstName{quote} = 'a)b'"}
    with sample.database.batch() as batch:
        batch.insert("Singers", ["SingerId", "FirstName"], [[1, "Nina"], [2, None], [3, "Ella"], [4, "a)b"]])
        batch.insert("Albums", ["SingerId", "AlbumId"], [[1, 1], [3, 1]])
    source = source_of(sample, {"exclude": ["A*"], "where": where, "max_tasks": 1})
    assert asyncio.run(errors(source)) == []
    spool = Spool.at(tmp_path)
    document = asyncio.run(recorded(source, spool))
    assert {"Albums", "AllTypes"}.isdisjoint(table.table for table in document.tables)
    found = find(spool, document.number)
    assert found is not None
    assert (found.document.version, found.document.conditions) == (2, where)

    own = spool_of(spool, document.number)
    options, session = ReadOptions("medium", data_boost=False), cast("SparkSession", _Session)
    with sole_writer(own):
        job = InProcessJob(session, source, None, 2**40, document, Feed.at(own.path), "files", options)
        job.run(threading.Event())
    assert job.waves == own.latest(), "each wave has one task"
    assert sorted(row.split('"SingerId":')[1][:3].strip('"}') for row in payloads(own)["Singers"]) == ["1", "2", "4"]


def test_check_names_each_condition_that_spanner_does_not_take(database: MakeDatabase) -> None:
    sample = database()
    where = {"Singers": "Nothing = 1", "Albums": "AlbumId LIKE", "Unwatched": "TRUE"}
    unwatched, *found = asyncio.run(errors(source_of(sample, {"where": where})))
    assert unwatched.startswith("source.backfill.where.Unwatched: change stream Everything watches no such table")
    assert [error.split(": ")[0] for error in found] == [
        "source.backfill.where.Singers",
        "source.backfill.where.Albums",
    ]
    assert "Nothing" in found[0]


def test_a_new_table_that_is_not_excluded_is_recorded_once(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    rules = {"new_tables": True, "exclude": ["Log*"], "where": {"Later": "Id > 1"}}
    config = load(configuration(tmp_path, sample, source={"backfill": rules}))
    spool, now = Spool.at(tmp_path / "spool"), time.time_ns() // 1000 * 1000
    watched = [schema(table.name) for table in sample.tables]
    header = initialize(spool, config.source.name, now + 1, "now", watched, default_schema=sample.database_id)

    def due() -> Backfill | None:
        return asyncio.run(backfill_of_new_tables(config))

    def finish(document: Backfill) -> None:
        tables = tuple(TableProgress(table=table.table, state="done") for table in document.tables)
        write_progress(spool_of(spool, document.number), BackfillProgress(updated=now, tables=tables))

    sample.run_ddl(
        "CREATE TABLE Later (Id INT64) PRIMARY KEY (Id)", "CREATE TABLE LogOfLater (Id INT64) PRIMARY KEY (Id)"
    )
    assert due() is None, "the backfill of the start comes first"
    first = record(
        spool, header, watched[:1], after=0, timestamp=lambda: now, why="start", dialect="googlesql", now=now
    )
    later = due()
    assert later is not None, "it does not wait for the first one"
    assert [(table.table, table.where) for table in later.tables] == [("Later", "Id > 1")]
    assert due() is None
    sample.run_ddl("CREATE TABLE Newest (Id INT64) PRIMARY KEY (Id)")
    assert due() is None, "two are read"
    finish(first)
    newest = due()
    assert newest is not None
    assert [table.table for table in newest.tables] == ["Newest"]
    finish(later)
    assert due() is None
    assert len(backfills(spool)) == 3
