"""A source, a spool with some of its changes, and a destination that has refused some of them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson
from google.cloud.spanner_v1.keyset import KeySet

from connector.config.loading import load
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import SECOND
from connector.spool import consumers
from connector.spool.manifest import SourceName
from emulator import SampleDatabase
from spark_sink.dead_letters_command import replayed
from spark_sink.sinks.spanner.replay import replay_into
from tests.integration.commands import Done, configuration, run
from tests.spark_sink.sinks.spanner.applying import Replica
from tests.spark_sink.sinks.spanner.changes import column
from tests.spark_sink.spools import SpoolMaker, record

COLUMNS = (column("Id", 1, of_key=True), column("Name", 2, kind="STRING"), column("Age", 3))
CHILD = (column("Id", 1, of_key=True), column("Parent", 2))

TABLES = {
    "googlesql": (
        "CREATE TABLE People (Id INT64 NOT NULL, Name STRING(MAX), Age INT64) PRIMARY KEY (Id)",
        "CREATE TABLE Children (Id INT64 NOT NULL, Parent INT64) PRIMARY KEY (Id)",
    ),
    "postgresql": (
        'CREATE TABLE "People" ("Id" bigint NOT NULL PRIMARY KEY, "Name" varchar, "Age" bigint)',
        'CREATE TABLE "Children" ("Id" bigint NOT NULL PRIMARY KEY, "Parent" bigint)',
    ),
}


@dataclass
class Pair:
    """Two databases, and the spool between them.

    Args:
        source: with :data:`TABLES`.
        sample: the destination, with its tables.
        folder: for everything else.
        sink: more options.
    """

    source: SampleDatabase
    sample: SampleDatabase
    folder: Path
    sink: Mapping[str, object] = field(default_factory=dict)
    _changes: list[DataChangeRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        name = SourceName(
            project=self.source.project,
            instance=self.source.instance,
            database=self.source.database_id,
            change_stream=self.source.change_stream,
        )
        self.spool = SpoolMaker(self.folder / "spool", source=name)
        self.replica = Replica(self.sample, self.spool, self.source, **self.sink)

    def commit(
        self,
        mod_type: str,
        key: int,
        table: str = "People",
        *,
        columns: Sequence[ColumnType] = COLUMNS,
        capture: str = "NEW_ROW",
        is_streamed: bool = True,
        **values: object,
    ) -> None:
        """Commits a change to the source, and keeps it for the next epoch unless the change stream lacks it."""
        with self.source.database.batch() as batch:
            if mod_type == "DELETE":
                batch.delete(table, KeySet(keys=[[key]]))
            else:
                write = batch.insert if mod_type == "INSERT" else batch.update
                write(table, ["Id", *values], [[key, *values.values()]])
        at = int(batch.committed.timestamp()) * SECOND + batch.committed.microsecond * 1000
        texts = {name: str(value) if isinstance(value, int) else value for name, value in values.items()}
        mod = Mod(f'{{"Id":"{key}"}}', orjson.dumps(texts).decode(), "{}")
        made = record(at, table=table, columns=tuple(columns), mod_type=mod_type)
        if is_streamed:
            self._changes.append(replace(made, value_capture_type=capture, mods=(mod,)))

    def seal(self) -> int:
        """Seals what was committed as an epoch."""
        changes, self._changes = self._changes, []
        return self.spool.seal(*changes)

    def apply(self) -> None:
        """Applies every epoch that is not applied, as the sink does, and records them as done."""
        known = consumers.find(self.spool.spool, "spanner")
        self.replica.apply(first=known.epoch + 1 if known else 1)
        self.record()

    def record(self) -> None:
        """Records every epoch as done."""
        spool = self.spool.spool
        newest = spool.manifest(spool.latest())
        consumers.record(spool, "spanner", newest.epoch, now=time.time_ns(), at=newest.identity)

    def alter(self, *statements: str) -> None:
        """Alters the destination."""
        self.sample.run_ddl(*statements)

    def config(self) -> Path:
        """The sink's configuration."""
        sink = {
            "type": "spanner",
            "database": self.sample.database_id,
            "dead_letters": str(self.folder / "dead"),
            **self.sink,
        }
        return configuration(self.folder, self.source, sink=sink, spark={"checkpoint": str(self.folder / "c")})

    def replay(self) -> tuple[int, int, int]:
        """Replays all dead letters; returns how many were accepted, rejected again, and not written."""
        store = self.replica.dead_letters
        with replay_into(load(self.config())) as into:
            done = replayed(store, store.files(), into, [], again=store.files)
        return done.sent, done.rejected, done.waiting

    def command(self, *options: str) -> Done:
        """The same by the command."""
        return run("dead-letters", "replay", self.config(), *options)

    def people(self) -> list[tuple[object, ...]]:
        """The rows of the destination's table."""
        return self.replica.rows("People", "Id", "Name", "Age")
