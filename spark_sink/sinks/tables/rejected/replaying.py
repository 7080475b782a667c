"""Replays the dead letters of single rows: each is written unless a later change of its row makes it useless.

A dead letter that is rejected again keeps those of its row that need it. What is older than a marker is not written,
and neither is what is in a dead letter of a stopped table, too: the table lacks its epoch, and gets it from there. A
dead letter of a table that was dropped before this one was created, with another key, is never written.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_sink.errors import TableError, TableNameError
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.known_schemas import Rejections
from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sinks.tables.rejected.changes import OpenDeadLetter, divided, superseded
from spark_sink.sinks.tables.rejected.checks import Checks
from spark_sink.sinks.tables.rejected.rejected_rows import EVENT_COLUMNS, open_dead_letters, opened


class LateWriter(Protocol):
    """Writes changes into tables that have later ones (:class:`spark_sink.sinks.tables.merge_into.TablesWriter`)."""

    @property
    def mode(self) -> str:
        """The mode of the tables."""

    def table(self, name: str) -> LakeTable:
        """A table; errors as there."""

    def applied(self, spark: SparkSession, name: str) -> int:
        """The last epoch that a table has; errors as there."""

    def write_again(
        self, changes: DataFrame, name: str, *, whole: bool, tombstones: frozenset[str], backfill: bool
    ) -> None:
        """Writes changes of a table that it lacks; errors as there."""


@dataclass
class RowsReplay:
    """Sends dead letters of single rows of a spool.

    Attributes:
        spark: a session with the format's library.
        writer: writes the tables.
        dead_letters: the sink's dead-letter store.
        prefix: the start of the names of these dead letters.
        others: the starts of the names of those of other spools; a repair has markers for them.
        stopped: the start of the names of those of stopped tables.
        is_backfill: whether the spool is a backfill's.
    """

    spark: SparkSession
    writer: LateWriter
    dead_letters: DeadLetters
    prefix: str
    others: Sequence[str]
    stopped: str
    is_backfill: bool
    _refused: dict[str, str] = field(default_factory=dict, init=False)
    _useless: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _kept: dict[str, list[OpenDeadLetter]] = field(default_factory=lambda: defaultdict(list), init=False)

    def has(self, name: str) -> bool:
        """True if a file of that name has dead letters of single rows of the spool."""
        return name.startswith(self.prefix)

    def why_waiting(self, table: str) -> str:
        """The reason why dead letters of a stopped table have to wait for those of its rows; empty if they need not.

        It is to be asked before they are sent: they may hold what is among those of its rows, too.
        """
        if table not in self._refused:
            try:
                self._useless_of(self.writer.table(table))
            except (TableError, TableNameError) as error:
                return str(error)
        return self._refused.get(table, "")

    def send(self, rows: pa.RecordBatch, tombstones: frozenset[str]) -> Rejections:
        """Writes the dead letters of a file, except those that are rejected again.

        Raises:
            PySparkException, Py4JError: Spark or the destination fails for more than one table.
        """
        name: str = rows.column("object")[0].as_py()
        if name not in self._refused:
            try:
                table = self.writer.table(name)
                former = self._of_former_key(table, rows)
                left = [index for index in range(rows.num_rows) if index not in former]
                rejected = self._send(table, rows.take(pa.array(left, pa.int64())), tombstones) if left else []
                return sorted([*former.items(), *((left[index], why) for index, why in rejected)])
            except (TableError, TableNameError) as error:
                self._refused[name] = str(error)
        return [(index, self._refused[name]) for index in range(rows.num_rows)]

    def _of_former_key(self, table: LakeTable, rows: pa.RecordBatch) -> Mapping[int, str]:
        """The indexes of rows of a table that was dropped before this one was created, each with the reason."""
        if self.writer.mode == "append":
            return {}
        why = f"table {table.source} was created again with another key, and no row has the former one: remove it"
        keys = rows.column("source_metadata").field("primary_keys").to_pylist()
        known = ((index, key) for index, key in enumerate(keys) if key is not None)
        return {index: why for index, key in known if sorted(key) != sorted(table.primary_key)}

    def _send(self, table: LakeTable, rows: pa.RecordBatch, tombstones: frozenset[str]) -> Rejections:
        name, mode = table.source, self.writer.mode
        events = self.spark.createDataFrame(pa.Table.from_batches([rows.select(EVENT_COLUMNS)]))
        checks = Checks(events, table)
        useless = self._useless_of(table)
        changes = {change.uuid: change for change in checks.all()}
        uuids = rows.column("uuid").to_pylist()
        if mode != "append" and any(not change.key for change in changes.values()):
            self._refused[name] = (
                "another dead letter of its table has a damaged payload: mend or remove that one first"
            )
            return [(index, changes[uuid].why or self._refused[name]) for index, uuid in enumerate(uuids)]
        division = divided(mode, [one for one in changes.values() if one.uuid not in useless], self._kept[name])
        left_out = useless | division.left_out
        written = [change for change in changes.values() if change.uuid not in left_out]
        if written:
            rest = checks.without(changes.keys() & left_out)
            whole = all(change.is_whole for change in written)
            self.writer.write_again(rest, name, whole=whole, tombstones=tombstones, backfill=self.is_backfill)
        again = {change.uuid: why for change, why in division.dead_letters}
        self._kept[name] += [opened(change, why) for change, why in division.dead_letters]
        return [(index, again[uuid]) for index, uuid in enumerate(uuids) if uuid in again]

    def _useless_of(self, table: LakeTable) -> frozenset[str]:
        """The uuids of a table's dead letters that are not written."""
        if table.source not in self._useless:
            mode = self.writer.mode
            prefixes = [self.prefix, *(self.others if mode == "merge" else ())]
            found = open_dead_letters(self.dead_letters, table, prefixes, self.spark, mode)
            useless = superseded([one for of_spool in found.values() for one in of_spool])
            self._useless[table.source] = useless | self._of_stopped(table, found.get(self.prefix, []))
        return self._useless[table.source]

    def _of_stopped(self, table: LakeTable, dead_letters: Sequence[OpenDeadLetter]) -> frozenset[str]:
        """The uuids of those that the table gets with other dead letters, because it lacks their epochs."""
        files = self.dead_letters.files(table.source, self.stopped) if dead_letters else []
        if not files:
            return frozenset()
        done = self.writer.applied(self.spark, table.source)
        lacked = {one.uuid for one in dead_letters if one.epoch > done}
        uuids = (self.dead_letters.read(file)[0].column("uuid").to_pylist() for file in files)
        return frozenset(uuid for of_file in uuids for uuid in of_file if uuid in lacked)
