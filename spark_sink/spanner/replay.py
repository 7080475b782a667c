"""Replays the Spanner sink's dead dead, without Spark, by what their rows are in the source.

Later changes of a dead letter's row may have been applied, and must not be followed by an earlier one. So the row is
read from the source as of the last epoch that the destination has, and written as it was then: this is what the
destination should have, and it is older than every change that the sink will apply. The sink must not run meanwhile.
What the sink has not recorded as done waits, because the sink will repeat it.

A row that the source did not have then is deleted if a dead letter says so: without one, a change stream that omits
deletes leaves it to the destination.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

import msgspec
import orjson
import pyarrow as pa

from connector.config.loading import Config
from connector.core.schemas import TableSchema
from connector.core.timestamps import format_rfc3339
from connector.errors import ConfigurationError, NoSuchTableError, VersionRetentionError
from connector.snapshot.queries import TableQuery
from connector.snapshot.reading import read_keys
from connector.spanner.blocking import BlockingClient
from connector.spool.consumers import find
from connector.spool.manifest import watermark_of
from connector.spool.reading import Spool
from spark_sink.errors import SinkError
from spark_sink.sink.completing.row_keys import Key, kinds_of
from spark_sink.sink.completing.spanner_rows import Completion, SpannerRows
from spark_sink.sink.completing.whole_rows import Read, Values, decoded, key_of
from spark_sink.sink.dead_letters import Replay
from spark_sink.sink.replayed_spools import ReplayedSpools, held, replayed_spool
from spark_sink.source.known_tables import KnownTables
from spark_sink.source.offsets import Offset
from spark_sink.source.spool_copies import check_copy
from spark_sink.spanner.config import Applying, SpannerConfig, Target
from spark_sink.spanner.destination_tables import EMULATOR_HOST, Destination, destination_at
from spark_sink.spanner.source import check_continues
from spark_sink.spanner.writing.planning import COMMIT_TIMESTAMP, SEQUENCE, Planner
from spark_sink.spanner.writing.progress import STARTS_OVER, Claimed, Progress, select_of
from spark_sink.spanner.writing.row_merger import Change
from spark_sink.spanner.writing.transactions import Transactions
from spark_sink.spanner.writing.units import Unit
from spark_sink.spanner.writing.writer import UnitWriter

Rejections = list[tuple[int, str]]
_Last = tuple[str, str]
"""The commit timestamp and the change sequence number of a row's last change."""


@contextmanager
def replay_into(config: Config) -> Iterator[Replay]:
    """A replay of dead dead, which holds the sink's lock and the bookkeeping row.

    Raises:
        SpoolError: there is no spool, or the sink has never delivered from it, or the destination was restored.
        SpoolMismatchError: it is another stream's.
        SpoolInUseError: the sink runs.
        SpannerCdcError: from the replay, too: a database cannot be used, or no longer keeps the rows.
    """
    assert isinstance(config.sink, SpannerConfig)
    sink = config.sink
    spool = replayed_spool(config)
    emulator_host = os.environ.get(EMULATOR_HOST)
    target = Target.of(sink, config.source)
    with held(spool, config) as spools:
        there = asyncio.run(destination_at(target, emulator_host))
        key = f"{spool.header().spool_id}/{sink.name}"
        client = BlockingClient(target, emulator_host)
        with Transactions(client, sink.transaction_tag, *select_of(there.dialect.name, key)) as transactions:
            progress = Progress(transactions, key, uuid4().hex, {})
            claimed = progress.claim(None)
            replay = _SpannerReplay(config, spool, spools, there, progress, claimed)
            try:
                yield replay
            finally:
                replay.close()


@dataclass(frozen=True, slots=True)
class _DeadRows:
    """The dead letters of a table's rows, which are one record batch.

    Attributes:
        keys: by row, the text of a JSON object with its key.
        places: by row, the indexes of its dead dead.
        rejected: those that have no key, with the reason.
    """

    keys: Mapping[Key, str]
    places: Mapping[Key, Sequence[int]]
    rejected: Rejections


class _SpannerReplay:
    def __init__(
        self,
        config: Config,
        spool: Spool,
        spools: ReplayedSpools,
        there: Destination,
        progress: Progress,
        claimed: Claimed,
    ) -> None:
        assert isinstance(config.sink, SpannerConfig)
        self._target = Target.of(config.sink, config.source)
        self._applying = replace(Applying.of(config.sink), mode="rows")
        self._emulator_host = os.environ.get(EMULATOR_HOST)
        self._spools = spools
        self._there = there
        self._tables = KnownTables(spool)
        keys = {name: self._tables.newest(name).primary_keys for name in self._tables.names()}
        self._planner = Planner(self._applying, there.tables, keys)
        self._writer = UnitWriter(self._planner, progress, self._applying)
        self._position = claimed.position
        self._watermark = _watermark(spool, config.sink.name, claimed)
        self._source = SpannerRows(Completion.reading(config.source))
        self._has_written: set[str] = set()

    def close(self) -> None:
        """Ends the threads."""
        self._writer.close()

    def send(self, name: str, rows: pa.RecordBatch) -> Rejections | None:
        """Writes the rows of a dead-letter file as the source has them; returns those that are rejected."""
        if self._watermark is None or self._spools.will_repeat(name, rows):
            return None  # the sink will repeat its micro-batch
        table: str = rows.column("object")[0].as_py()
        try:
            schema = self._tables.newest(table)
            dead = _dead_rows(rows, schema)
            now = self._now(schema, dead, self._watermark)
        except (ConfigurationError, NoSuchTableError):
            why = f"the source has no table {table} any more: remove this dead letter"
            return [(index, why) for index in range(rows.num_rows)]
        return sorted([*dead.rejected, *self._write(table, _changes(rows, dead, now, self._last(table, dead)))])

    def _now(self, schema: TableSchema, dead: _DeadRows, watermark: int) -> Mapping[Key, Values]:
        """The rows as the source had them at the destination's last epoch."""
        columns = tuple(column.name for column in schema.columns if column.name not in schema.primary_keys)
        read = Read(schema.table, columns, schema.primary_keys, tuple(dead.keys.values()), watermark)
        if not read.keys:
            return {}
        try:
            return self._source.rows(read).rows
        except VersionRetentionError as error:
            raise SinkError(
                f"the source no longer keeps its rows as of {format_rfc3339(watermark)}, the last commit that the"
                f" destination has ({error})",
                hint="Run the sink until it has applied the newest epochs, stop it, and replay again.",
            ) from error

    def _last(self, table: str, dead: _DeadRows) -> Mapping[Key, _Last]:
        """The last changes of the rows that the destination has, by its columns, where it has these."""
        columns = [column for column in (COMMIT_TIMESTAMP, SEQUENCE) if self._applying.metadata]
        if not columns or not dead.keys or self._planner.why_not(table, ()):
            return {}
        schema, name = self._tables.newest(table), self._applying.table(table)
        of_source = {self._applying.column(table, column): column for column in schema.primary_keys}
        key_columns = self._there.tables[name].key
        keys = [
            msgspec.json.encode({of: values[column] for of, column in of_source.items()}).decode()
            for values in map(decoded, dead.keys.values())
        ]
        found: dict[Key, _Last] = {}
        for block in read_keys(
            self._target,
            self._emulator_host,
            TableQuery(name, (*key_columns, *columns)),
            pa.array(keys, pa.string()),
            key_columns,
            None,
        ):
            for key, row in zip(block.payloads(key_columns), block.payloads(columns), strict=True):
                named = {of_source[of]: value for of, value in decoded(key.as_py()).items()}
                last: dict[str, str | None] = orjson.loads(row.as_py())
                place = key_of(named, schema.primary_keys, kinds_of(schema))
                found[place] = (last[COMMIT_TIMESTAMP] or "", last[SEQUENCE] or "")
        return found

    def _write(self, table: str, changes: Sequence[Change]) -> Rejections:
        if not changes:
            return []
        unit = Unit(self._position, self._position, [list(changes)])
        rejected = [(one.change.at[1], one.why) for written in self._writer.write(unit) for one in written.rejected]
        if len(rejected) < len(changes):
            self._has_written.add(table)
        return rejected

    def tried(self, table: str, *, left: int) -> None:
        """A table whose last dead letter is written is no longer stopped."""
        if not left and table in self._has_written:
            self._spools.resume(table)


def _watermark(spool: Spool, consumer: str, claimed: Claimed) -> int | None:
    """The last commit timestamp that the destination has; None while a micro-batch is applied in part.

    Raises:
        SpoolError: the destination was restored, or the spool is another copy.
    """
    known = find(spool, consumer)
    if known is None or not known.at or claimed.position.events:
        return None
    check_continues(claimed.position, known.epoch + 1)
    identity = claimed.identity or (known.at if claimed.epoch == known.epoch else "")
    check_copy(spool, "what the destination has applied", Offset(claimed.epoch, at=identity), STARTS_OVER)
    return watermark_of(identity) if identity else None


def _dead_rows(rows: pa.RecordBatch, schema: TableSchema) -> _DeadRows:
    keys: dict[Key, str] = {}
    places: dict[Key, list[int]] = defaultdict(list)
    rejected: Rejections = []
    for index, payload in enumerate(rows.column("payload").to_pylist()):
        try:
            values = decoded(payload)
            text = msgspec.json.encode({name: values[name] for name in schema.primary_keys}).decode()
        except (msgspec.MsgspecError, KeyError):
            rejected.append((index, f"it lacks the key of table {schema.table}: remove this dead letter"))
            continue
        key = key_of(values, schema.primary_keys, kinds_of(schema))
        keys.setdefault(key, text)
        places[key].append(index)
    return _DeadRows(keys, places, rejected)


def _changes(
    rows: pa.RecordBatch, dead: _DeadRows, now: Mapping[Key, Values], known: Mapping[Key, _Last]
) -> list[Change]:
    """What makes rows what they are, a change for each dead letter."""
    metadata = rows.column("source_metadata")
    mod_types = metadata.field("mod_type").to_pylist()
    timestamps = metadata.field("commit_timestamp").to_pylist()
    sequences = rows.column("change_sequence_number").to_pylist()
    table: str = rows.column("object")[0].as_py()
    changes: list[Change] = []
    for key, places in dead.places.items():
        values = now.get(key)
        if values is None and not any(mod_types[place] == "DELETE" for place in places):
            continue
        payload = dead.keys[key]
        if values is not None:
            payload = msgspec.json.encode({**decoded(payload), **values}).decode()
        mod_type = "DELETE" if values is None else "UPDATE"
        last = [(timestamps[place], sequences[place]) for place in places]
        timestamp, sequence = max([*last, *([known[key]] if key in known else [])], key=lambda one: one[1])
        changes += [Change(table, mod_type, True, payload, timestamp, sequence, "", (0, place)) for place in places]
    return changes
