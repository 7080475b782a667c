"""The columns of a backfill are those of its timestamp, whatever is altered before and after it."""

import asyncio
from pathlib import Path

import pytest

from connector.check.starts import start_after
from connector.config import SourceConfig
from connector.daemon.backfill_recorder import BackfillRecorder
from connector.daemon.backfill_requests import Requests
from connector.daemon.due_backfills import due_at_start
from connector.reader.change_stream import opened
from connector.spanner.snapshot.partitions import SnapshotPartition
from connector.spanner.snapshot.reading import read_partition
from connector.spanner.versions import RowVersions
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.records import plans, spool_of
from connector.spool.reading import Spool
from connector.spool.writing import initialize
from emulator import SampleDatabase, Workload
from spark_sink.reading.backfill.planning import TablePlans
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator


async def recorded(sample: SampleDatabase, source: SourceConfig, spool: Spool) -> Backfill:
    """Records a backfill whose timestamp is after a change of table Singers that its discovery has not seen."""
    async with opened(source, started=True) as stream:
        sample.run_ddl("ALTER TABLE Singers ADD COLUMN Added STRING(MAX) DEFAULT ('default')")
        requests = Requests.of(stream)
        now = await asyncio.to_thread(requests.clock)
        header = initialize(
            spool, source.name, start_after(now), "now", stream.stream.tables, default_schema=source.database
        )
        recorder = BackfillRecorder(spool, header, stream, RowVersions("1h", {}), requests)
        (document,) = await asyncio.to_thread(due_at_start, recorder)
    return document


def test_tables_are_read_with_the_columns_as_of_the_timestamp(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    Workload(sample, seed=1515).run(mods=60)
    source = SourceConfig.model_validate(
        {
            "project": sample.project,
            "instance": sample.instance,
            "database": sample.database_id,
            "change_stream": sample.change_stream,
            "emulator_host": sample.host,
        }
    )
    spool = Spool.at(tmp_path)
    document = asyncio.run(recorded(sample, source, spool))
    own = spool_of(spool, document.number)
    (singers,) = (index for index, table in enumerate(document.tables) if table.table == "Singers")
    schema = own.schema(document.tables[singers].schema_key)
    assert "Added" in {column.name for column in schema.columns}
    sample.run_ddl("ALTER TABLE Singers DROP COLUMN Added", "ALTER TABLE Singers ADD COLUMN Later INT64")
    TablePlans(own, document, source.address, data_boost=False).make([singers])
    texts = [
        text
        for partition in plans(own, document.tables)["Singers"].partitions
        for block in read_partition(source.address, SnapshotPartition.from_json(partition.encode()))
        for text in block.payloads([column.name for column in schema.columns]).to_pylist()
    ]
    assert texts
    assert all('"Added":"default"' in text for text in texts)
