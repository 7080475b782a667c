"""Backfills of a scripted Spanner, read by jobs whose tasks run in this process, without Spark."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import orjson
from pyspark.sql import Row, SparkSession

from connector.config import SourceConfig
from connector.core.schemas import TableSchema
from connector.reader.change_stream import opened
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.records import record, spool_of
from connector.spool.reading import Spool
from connector.spool.writing import initialize, sole_writer
from emulator import ScriptedServer
from spark_sink.reading.backfill.job import BackfillJob, ReadOptions
from spark_sink.reading.backfill.partitions import BackfillReader, Task
from spark_sink.sinks.shared.feed import Feed
from tests.connector.spanner.snapshot.scripted import dialect_of, middle, source_of


class _Session:
    """As much of a Spark session as a job needs that runs its tasks itself."""

    class sparkContext:  # noqa: N801
        defaultParallelism = 2  # noqa: N815

        @staticmethod
        def cancelJobGroup(group: str) -> None:  # noqa: N802
            pass

    class dataSource:  # noqa: N801
        @staticmethod
        def register(source: object) -> None:
            pass


class InProcessJob(BackfillJob):
    """Runs the tasks of its waves in this process.

    Attributes:
        killed_before: the wave before which the job is killed, from 1; 0 for none.
    """

    killed_before = 0
    waves = 0

    def _job(self, wave: list[Task], group: str) -> list[Row]:
        self.waves += 1
        if self.waves == self.killed_before:
            raise KilledError
        setup, tasks = orjson.dumps(_node(self._setup)).decode(), orjson.dumps([_node(task) for task in wave]).decode()
        reader = BackfillReader(setup, tasks)
        batches = (batch for partition in reader.partitions() for batch in reader.read(partition))
        return [Row(**row) for batch in batches for row in batch.to_pylist()]


class KilledError(Exception):
    """Stands for a kill of the process."""


def _node(struct: Any) -> dict[str, object]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def recorded(server: ScriptedServer, folder: Path) -> tuple[Spool, Backfill]:
    """Records a backfill of all tables in the middle of the server's history; returns its spool."""
    source, at = source_of(server), middle(server) // 1000 * 1000
    tables = asyncio.run(_tables(source))
    spool = Spool.at(folder)
    header = initialize(spool, source.name, at + 1, "now", tables, default_schema="d")
    document = record(
        spool,
        header,
        tables,
        after=0,
        timestamp=lambda: at,
        why="start",
        dialect=dialect_of(server).name,
        now=at,
    )
    return spool_of(spool, document.number), document


async def _tables(source: SourceConfig) -> list[TableSchema]:
    async with opened(source) as stream:
        return list(stream.stream.tables)


@contextmanager
def job_of(server: ScriptedServer, own: Spool, document: Backfill, *, max_bytes: int = 2**40) -> Iterator[InProcessJob]:
    options = ReadOptions("medium", data_boost=False)
    session = cast("SparkSession", _Session)
    with sole_writer(own):
        yield InProcessJob(session, source_of(server), None, max_bytes, document, Feed.at(own.path), "files", options)


def read_all(server: ScriptedServer, own: Spool, document: Backfill) -> None:
    """Reads until everything is sealed."""
    with job_of(server, own, document) as job:
        job.run(threading.Event())


def payloads(own: Spool) -> dict[str, Counter[str]]:
    """The rows of all epochs, by table, as canonical JSON."""
    found: dict[str, Counter[str]] = {}
    for manifest in own.manifests(1, own.latest()):
        for file in manifest.files:
            for batch in own.batches(file):
                for table, payload in zip(batch["object"].to_pylist(), batch["payload"].to_pylist(), strict=True):
                    text = orjson.dumps(orjson.loads(payload), option=orjson.OPT_SORT_KEYS).decode()
                    found.setdefault(table, Counter())[text] += 1
    return found


def uuids(own: Spool) -> Counter[str]:
    """The number of times that each event is in the epochs."""
    files = [file for manifest in own.manifests(1, own.latest()) for file in manifest.files]
    return Counter(uuid for file in files for batch in own.batches(file) for uuid in batch["uuid"].to_pylist())


def killed_before(server: ScriptedServer, own: Spool, document: Backfill, wave: int) -> None:
    """Reads until the job is killed before a wave, from 1."""
    with job_of(server, own, document) as job:
        job.killed_before = wave
        try:
            job.run(threading.Event())
        except KilledError:
            return
    raise AssertionError(f"there are fewer than {wave} waves")
