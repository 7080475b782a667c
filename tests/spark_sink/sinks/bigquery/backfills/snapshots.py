"""Backfills of a scenario's tables: recorded beside its spool, sealed in parts, delivered by a sink of their own."""

import json
from copy import deepcopy

import pyarrow as pa

from connector.config.sections import SpoolConfig
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.envelope.snapshot_events import SnapshotEnvelope
from connector.spool.backfill.documents import BackfillProgress, TableProgress
from connector.spool.backfill.records import record, spool_of, write_progress
from connector.spool.backfill.sealing import BackfillWriter
from connector.spool.manifest import BackfillPart
from connector.spool.segments import SegmentBuffer
from tests.spark_sink.sinks.bigquery.deliveries.histories import Key, Row
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint, SinkRun
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import Scenario
from tests.spark_sink.spools import SOURCE


class Snapshot:
    """A backfill of the rows that a scenario's history has now."""

    def __init__(self, scenario: Scenario, *, before: int = 0, continues: int = 0) -> None:
        """The timestamp is so many nanoseconds before the last commit; its rows are wrong then."""
        self._scenario = scenario
        history = scenario.history
        self.timestamp = history.at - before
        self._left: list[tuple[str, Key, Row]] = [
            (table, key, deepcopy(row))
            for table in history.tables
            for key, row in sorted(history.rows.get(table, {}).items())
        ]
        self._schemas = {table.name: TableSchema.of(table.name, table.columns) for table in history.tables.values()}
        stream = scenario.maker.spool
        self._document = record(
            stream,
            stream.header(),
            list(self._schemas.values()),
            timestamp=lambda: self.timestamp,
            why="command",
            dialect="GOOGLE_STANDARD_SQL",
            now=self.timestamp,
            continues=continues,
        )
        self.spool = spool_of(stream, self._document.number)
        self._writer = BackfillWriter(self.spool, self.spool.header(), self._document)
        self._envelope = SnapshotEnvelope(SOURCE, stream_name=None, timestamp=self.timestamp)
        self._checkpoint = Checkpoint([])

    @property
    def is_sealed(self) -> bool:
        """True if all rows are in its spool."""
        return not self._left

    def seal(self, most: int) -> None:
        """Seals up to ``most`` rows of one table as a partition."""
        table = self._left[0][0]
        part = [(key, row) for of, key, row in self._left if of == table][:most]
        self._left = self._left[len(part) :]
        keys = [dict(zip(self._scenario.history.tables[table].keys, key, strict=True)) for key, _ in part]
        names = [column.name for column in self._scenario.history.tables[table].others]
        rows = self._envelope.build(
            pa.array(map(json.dumps, keys), pa.string()),
            pa.array([json.dumps({name: row.get(name) for name in names}) for _, row in part], pa.string()),
            self._schemas[table],
            self._schemas[table].key,
            self._writer.epoch + 1,
            self.timestamp,
        )
        segment = SegmentBuffer()
        segment.append(rows)
        path = f"segments/{self._writer.epoch + 1:020d}.arrow"
        file = segment.store(self.spool.storage, path, first=self.timestamp, last=self.timestamp)
        of = BackfillPart(table=table, plan=1, partition=self._writer.epoch)
        self._writer.seal(of, [file], now=self.timestamp)

    def sink(self, *, cores: int = 2, age: int = 3600 * SECOND) -> SinkRun:
        """A run of its sink, so many nanoseconds after its timestamp."""
        config = self._scenario.config().model_copy(update={"spool": SpoolConfig(path=self.spool.path)})
        sink = SinkRun(config, self._checkpoint, cores=cores, clock=lambda: self.timestamp + age)
        sink.only_what_is_sealed()
        return sink

    def run(self) -> list[str]:
        """Delivers what is sealed; returns the lines of the log."""
        with self.sink() as sink:
            return sink.run()

    def done(self) -> None:
        """Reports that everything is delivered."""
        tables = tuple(TableProgress(table=table, state="done") for table in self._schemas)
        write_progress(self.spool, BackfillProgress(updated=self.timestamp, tables=tables))
