"""The campaign of rejected rows: once they are mended and replayed, tables are as if none had been rejected.

``python -m tests.spark_sink.sinks.tables.rejected.campaign --sink delta --seeds 12``, in an environment whose PySpark
has a library of the format. Each seed is one of the campaign of histories, in one of the three modes, in which some
values of the changes and of the backfill cannot be cast. Dead letters are replayed as they are, or mended.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from connector.core.records import DataChangeRecord, Mod
from spark_sink.dead_letters_command import replayed
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.replayed_spools import held
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.merge_into import TablesWriter
from spark_sink.sinks.tables.replay import TablesReplay
from tests.spark_sink.sinks.tables.campaign.backfill_ends import POINTS, BackfillEnds, Points, run_seeds
from tests.spark_sink.sinks.tables.campaign.changing_source import TABLES
from tests.spark_sink.sinks.tables.histories import as_text
from tests.spark_sink.sinks.tables.history.campaign import differences, ends_of, stored_versions
from tests.spark_sink.sinks.tables.history.source import NAMES, VersionedSource
from tests.spark_sink.sinks.tables.history.versions import Row, versions_of
from tests.spark_sink.sinks.tables.reading import rows_of, target

MODES = ("merge", "history", "append")

_BAD, _MENDED = "private-4711", "7.25"
"""A value that cannot be cast, and what it is mended to."""


class RejectedSource(VersionedSource):
    """A database with values that cannot be cast; its rows and events have the mended ones."""

    def values(self, row: Row) -> dict[str, object]:
        """The row itself."""
        return {name: _BAD if value == _MENDED else value for name, value in row.items()}

    def _changed(self, table: str, key: int, at: int, number: int) -> DataChangeRecord:
        made = super()._changed(table, key, at, number)
        (mod,) = made.mods
        new, old = orjson.loads(mod.new_values), {}
        if made.mod_type == "DELETE" and self._chance.random() < 0.2:
            old = {"Balance": _BAD}
        texts = (orjson.dumps(one).decode() for one in (self.values(new), old))
        return replace(made, mods=(Mod(mod.keys, *texts),))

    def _value(self, name: str) -> object:
        return _MENDED if name == "Balance" and self._chance.random() < 0.05 else super()._value(name)


class RejectedCampaign(BackfillEnds):
    """One seed; arguments as there."""

    source: RejectedSource
    points: ClassVar[Points] = (*POINTS, (DeadLetters, "put"), (TablesWriter, "_write_events"))

    def __init__(self, spark: SparkSession, of_format: str, end: str, folder: Path, seed: int) -> None:
        self._mode = MODES[seed % 3]
        super().__init__(spark, of_format, end, folder, seed, RejectedSource, self._mode)
        self._is_over = False
        self.kind = f", {self._mode}, {'whole rows' if self.source.is_whole else 'changed columns'}"

    def _run(self) -> str:
        super()._run()
        self.replay_all()
        return self.wrong()

    def replay_all(self) -> None:
        """Replays all dead letters, mended."""
        self.mend()
        self._is_over = True
        self.replay()

    def _replay(self) -> None:
        config = self._config
        assert isinstance(config.sink, TablesConfig)
        store = DeadLetters(config.sink.dead_letters)
        is_mended = self._is_over or self._random.random() < 0.5
        if is_mended:
            _mend(store)
        with held(self._maker.spool, config) as spools:
            replay = TablesReplay(config, config.sink, self._maker.spool, spools, self._spark)
            done = replayed(store, store.files(), replay, [])
            self.letters += done.sent
            assert not (is_mended and done.rejected), [file.reasons for file in store.files()]
            assert not (self._is_over and done.waiting)
            replay.settle()

    def wrong(self) -> str:
        """The differences between the tables and the source; empty if there are none, or dead letters are left."""
        return "" if not self._is_over else next(filter(None, map(self._wrong, TABLES)), "")

    def _wrong(self, table: str) -> str:
        place, events = target(self._lake, self._format, table), self.source.events[table]
        if self._mode == "history":
            return differences(stored_versions(self._spark, place), versions_of(events, NAMES))
        if self._mode == "merge":
            found, expected = as_text(rows_of(self._spark, place, "true")), as_text(self.source.rows[table])
            different = {key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)}
            return f"{table}: rows {sorted(different)[:5]} differ: {found}, {expected}" if different else ""
        self._spark.sql(f"REFRESH TABLE {place}")
        rows = self._spark.table(place).select("Id", "_change_sequence_number", "_mod_type").collect()
        appended, made = sorted(map(tuple, rows)), sorted((one.key, one.number, one.kind) for one in events)
        return "" if appended == made else f"{table}: {len(appended)} rows, not {len(made)}"


def _mend(store: DeadLetters) -> None:
    for file in store.files():
        rows, why = store.read(file)
        number = rows.schema.names.index("payload")
        payloads = [one.replace(_BAD, _MENDED) for one in rows.column("payload").to_pylist()]
        column = pa.array(payloads, pa.string())
        store.replace(file, rows.set_column(number, rows.schema.field(number), column), why)


if __name__ == "__main__":
    sys.exit(run_seeds("tests.spark_sink.sinks.tables.rejected.campaign", RejectedCampaign, ends_of))
