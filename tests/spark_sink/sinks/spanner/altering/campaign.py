"""One seed: a history of DDL in one database, read into a spool, and applied to another by a sink that is mostly down.

The sink's process is this one, without Spark. Whoever runs it does what the dead letters advise: drops in the
destination what was dropped and created again in the source, and replays; and copies a table that was renamed, as a
backfill of it does. In the end every cell of the source is compared.
"""

import asyncio
import re
import time
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from google.cloud.spanner_v1.keyset import KeySet
from pyspark.sql import Row

from connector.config.address import DatabaseAddress
from connector.config.loading import Config, validated
from connector.core.timestamps import format_rfc3339
from connector.daemon.read import read
from connector.reader.stopping import StopRequest
from connector.spool import consumers
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from emulator import SampleDatabase
from spark_sink.dead_letters_command import replayed
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.spanner.config import SpannerConfig
from spark_sink.sinks.spanner.creation import create_missing
from spark_sink.sinks.spanner.delivery import SpannerDelivery
from spark_sink.sinks.spanner.destination_tables import DestinationTable, destination_at
from spark_sink.sinks.spanner.replay import replay_into
from spark_sink.sinks.spanner.source import SpannerPlace, SpannerSinkReader
from spark_sink.sinks.spanner.source_tables import SourceTable, source_tables
from tests.spark_sink.sinks.spanner.altering.history import History

ROUNDS, STEPS, REPAIRS = 7, 8, 6

_FORMER_KEY = re.compile(r"the key of table (\S+) of the destination is")
_FORMER_TYPE = re.compile(r"table (\S+) of the destination has column (.+) with (?:a former|another) type")
_GONE = re.compile(r"was created again with another key|the source had no table")


class Altering:
    """Two databases, and the sink between them.

    Args:
        source: a database with a change stream that watches all of it.
        replica: an empty one.
        folder: everything else.
        mode: of the sink.
        seed: of all that is random.

    Attributes:
        history: the source's.
        done: what happened, counted.
    """

    def __init__(self, source: SampleDatabase, replica: SampleDatabase, folder: Path, mode: str, seed: int) -> None:
        self._source = source
        self._replica = replica
        self._folder = folder
        self._mode = mode
        self._random = Random(seed)
        self._start = format_rfc3339(time.time_ns())
        self._delivery: SpannerDelivery | None = None
        self.history = History(source, self._random)
        self.done: Counter[str] = Counter()

    def run(self, rounds: int) -> str:
        """Changes and reads the source so often; returns what is wrong in the end, or an empty text."""
        for _ in range(rounds):
            for _ in range(self._random.randint(1, STEPS)):
                self.history.step()
            self._read()
            if self._random.random() < 0.5:
                self._deliver()
                if self._random.random() < 0.3:
                    self._repair()
        self._deliver()
        for _ in range(REPAIRS):
            if not self._repair():
                break
        return self._left() or self._differences()

    def _config(self) -> Config:
        source = {
            "project": self._source.project,
            "instance": self._source.instance,
            "database": self._source.database_id,
            "change_stream": self._source.change_stream,
            "emulator_host": self._source.host,
            "start": self._start,
            "end": self._now(),
        }
        sink = {
            "type": "spanner",
            "database": self._replica.database_id,
            "mode": self._mode,
            "create_tables": True,
            "dead_letters": str(self._folder / "dead"),
        }
        spool = {"path": str(self._folder / "spool"), "seal_interval": "100ms"}
        return validated({"source": source, "sink": sink, "spool": spool, "status": {"port": 0}})

    def _now(self) -> str:
        """By the clock that has the timestamps of commits, which may be ahead of this process's."""
        with self._source.database.snapshot() as snapshot:
            ((at,),) = snapshot.execute_sql("SELECT CURRENT_TIMESTAMP")
        return str(at.rfc3339())

    def _read(self) -> None:
        asyncio.run(read(self._config(), StopRequest(drain_timeout=1)))

    # The sink.

    def _deliver(self) -> None:
        """Applies what is sealed, in one or more micro-batches."""
        if self._delivery is None or self._random.random() < 0.5:  # else it was only slow
            config = self._config()
            assert isinstance(config.sink, SpannerConfig)
            self._delivery = SpannerDelivery(config, config.sink, Feed.of(config))
        spool = Spool.at(self._folder / "spool")
        known = consumers.find(spool, "spanner")
        left = [*spool.manifests(known.epoch + 1 if known else 1, spool.latest())]
        while left:
            many = self._random.randint(1, len(left))
            self._batch(self._delivery, spool, left[:many])
            left = left[many:]
        self._copy()

    def _batch(self, delivery: SpannerDelivery, spool: Spool, epochs: list[Manifest]) -> None:
        options = delivery.options
        place = SpannerPlace.from_text(options["place"])
        reader = SpannerSinkReader(Feed.of_options(options), options["consumer"], place, options["applying"])
        (partition,) = reader.plan(epochs, "")

        def collect() -> list[Row]:
            return [Row(**row) for batch in reader.read(partition) for row in batch.to_pylist()]

        reports: Any = SimpleNamespace(collect=collect)
        said = delivery.run(reports)
        self.done["batches"] += 1
        self.done["batches that left something out"] += "no longer has" in said
        consumers.record(spool, "spanner", epochs[-1].epoch, now=time.time_ns(), at=epochs[-1].identity)

    # Whoever runs it.

    def _copy(self) -> None:
        """Copies the tables that were renamed: the change stream has only those rows that were changed since."""
        renamed = {name: self._tables_here()[name] for name in sorted(self.history.renamed)}
        wanted = {name: frozenset(table.types) for name, table in renamed.items()}
        create_missing(wanted, self._target(self._source), self._target())
        there = self._tables_there()
        for name, table in renamed.items():
            if name not in there or _key_of(there[name]) != _key_of(table):
                continue  # it has the name of one that is dropped when its dead letters advise that
            columns = [column for column, kind in table.types.items() if there[name].types.get(column) == kind]
            with self._source.database.snapshot() as snapshot:
                rows = [tuple(row) for row in snapshot.read(name, columns, KeySet(all_=True))]
            with self._replica.database.batch() as batch:
                batch.insert_or_update(name, columns, rows)
            self.history.renamed.discard(name)
            self.done["copies"] += 1

    def _repair(self) -> bool:
        """Does what the dead letters advise, and replays them; returns whether there were any."""
        store = DeadLetters(str(self._folder / "dead/spanner"))
        files = store.files()
        for file in files:
            for reason in file.reasons:
                if match := _FORMER_KEY.search(reason):
                    self._drop_there(match[1])
                elif match := _FORMER_TYPE.search(reason):
                    for column in match[2].split(", "):
                        self._drop_column_there(match[1], column)
            if all(_GONE.search(reason) for reason in file.reasons):
                store.remove(file)
        if files:
            with replay_into(self._config()) as into:
                done = replayed(store, store.files(), into, [], again=store.files)
            self.done["replayed"] += done.sent
        return bool(files)

    def _drop_there(self, name: str) -> None:
        found = asyncio.run(destination_at(self._target()))
        here = self._tables_here().get(name)
        if here is None or name not in found.tables or _key_of(found.tables[name]) == _key_of(here):
            return
        for child in (child for child, parent in found.relations.interleaved.items() if parent == name):
            self._replica.run_ddl(f"DROP TABLE {self._quoted(child)}")
        self._replica.run_ddl(f"DROP TABLE {self._quoted(name)}")
        self.done["tables dropped there"] += 1

    def _drop_column_there(self, name: str, column: str) -> None:
        there, here = self._tables_there().get(name), self._tables_here().get(name)
        if there and here and column in there.columns and there.types[column] != here.types.get(column):
            self._replica.run_ddl(f"ALTER TABLE {self._quoted(name)} DROP COLUMN {self._quoted(column)}")
            self.done["columns dropped there"] += 1

    # What is left.

    def _left(self) -> str:
        reasons = Counter[str]()
        for file in DeadLetters(str(self._folder / "dead/spanner")).files():
            for reason, count in file.reasons.items():
                reasons[f"{file.table}: {reason}"] += count
        return f"dead letters are left: {dict(reasons)}" if reasons else ""

    def _differences(self) -> str:
        there = self._tables_there()
        for name, table in sorted(self._tables_here().items()):
            columns = sorted(table.types)
            with self._source.database.snapshot() as snapshot:
                wanted = [
                    dict(zip(columns, row, strict=True)) for row in snapshot.read(name, columns, KeySet(all_=True))
                ]
            types = there[name].types if name in there else {}
            known = [column for column in columns if types.get(column) == table.types[column]]
            found: list[dict[str, object]] = []
            if known and _key_of(there[name]) == _key_of(table):  # else it is the former one
                with self._replica.database.snapshot() as snapshot:
                    rows = [*snapshot.read(name, known, KeySet(all_=True))]
                found = [dict.fromkeys(columns) | dict(zip(known, row, strict=True)) for row in rows]
            self.done["cells"] += len(wanted) * len(columns)
            if sorted(map(repr, wanted)) != sorted(map(repr, found)):
                return f"table {name}: the source has {wanted}, the destination {found}"
        return ""

    def _tables_here(self) -> dict[str, SourceTable]:
        found = source_tables(self._target(self._source)) or {}
        return {name: table for name, table in found.items() if name in self.history.tables}

    def _tables_there(self) -> dict[str, DestinationTable]:
        return dict(asyncio.run(destination_at(self._target())).tables)

    def _target(self, sample: SampleDatabase | None = None) -> DatabaseAddress:
        of = sample or self._replica
        return DatabaseAddress(of.project, of.instance, of.database_id, None, of.host)

    def _quoted(self, name: str) -> str:
        return f'"{name}"' if self._replica.dialect == "postgresql" else f"`{name}`"


def _key_of(table: SourceTable | DestinationTable) -> dict[str, str]:
    """The columns of a table's key with their types."""
    return {column: table.types[column] for column in table.key}
