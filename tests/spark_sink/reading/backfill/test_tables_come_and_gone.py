"""A backfill at a timestamp at which a table or a column did not exist, or of a table that is dropped since."""

import asyncio
import threading
import time
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from connector.config import SourceConfig
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.reader.change_stream import opened
from connector.spool.backfill.records import progress_of, record, spool_of
from connector.spool.reading import Spool
from connector.spool.writing import initialize, sole_writer
from spark_sink.reading.backfill.job import ReadOptions
from spark_sink.sinks.shared.feed import Feed
from tests.integration.servers import MakeDatabase
from tests.spark_sink.reading.backfill.jobs import InProcessJob, _Session, payloads

pytestmark = pytest.mark.emulator


async def watched(source: SourceConfig) -> tuple[list[TableSchema], int]:
    async with opened(source) as stream:
        return list(stream.stream.tables), stream.now


def test_what_did_not_exist_at_the_timestamp_is_left_out_and_said(
    database: MakeDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = database()
    with sample.database.batch() as batch:
        batch.insert("Singers", ["SingerId", "FirstName"], [[1, "Nina"]])
    source = SourceConfig(
        project=sample.project,
        instance=sample.instance,
        database=sample.database.database_id,
        change_stream=sample.change_stream,
        emulator_host=sample.host,
    )
    _, at = asyncio.run(watched(source))
    sample.run_ddl("CREATE TABLE Later (Id INT64) PRIMARY KEY (Id)")
    sample.run_ddl("ALTER TABLE Singers ADD COLUMN Stage STRING(20)")
    tables = [table for table in asyncio.run(watched(source))[0] if table.table in ("Singers", "Later")]
    gone = TableSchema.of("Gone", [ColumnType("Id", '{"code":"INT64"}', True, 1)], ("Id",))
    spool = Spool.at(tmp_path)
    header = initialize(spool, source.name, at + 1, "now", [*tables, gone], default_schema="d")
    document = record(
        spool, header, [*tables, gone], after=0, timestamp=lambda: at // 1000 * 1000, why="start",
        dialect="googlesql", now=time.time_ns(),
    )  # fmt: skip
    own = spool_of(spool, document.number)
    options = ReadOptions("medium", data_boost=False)
    with sole_writer(own):
        job = InProcessJob(
            cast("SparkSession", _Session), source, None, 2**40, document, Feed.at(own.path), "files", options
        )
        job.run(threading.Event())
    assert {table: sum(rows.values()) for table, rows in payloads(own).items()} == {"Singers": 1}
    assert {table.state for table in progress_of(own, document).tables} <= {"done", "read"}
    said = capsys.readouterr().err
    assert "table Later is left out: it did not exist at" in said
    assert "table Gone is left out: it did not exist at" in said
    assert "table Singers: its rows are read without Stage" in said
