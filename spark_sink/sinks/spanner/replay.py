"""Replays the Spanner sink's dead letters, without Spark, by what their rows are in the source.

Later changes of a dead letter's row may have been applied, and must not be followed by an earlier one. So the row is
read from the source as of the last epoch that the destination has, and written as it was then. That is its right state,
and later changes come once the sink runs again. So the sink must not run meanwhile, and this does not hold while a
backfill is later than that epoch, because its rows may hold what the stream lacks.

A row that the source did not have then is deleted if one of its dead letters is a DELETE: else a change stream that
omits deletes leaves it to the destination.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa

from connector.config.loading import Config
from connector.core.column_kinds import type_code
from connector.core.masking.rules import HASH
from connector.core.schemas import TableSchema
from connector.core.timestamps import format_rfc3339
from connector.errors import NoSuchTableError, SpoolError, VersionRetentionError
from connector.spool.backfill.records import backfills
from connector.spool.consumers import find
from connector.spool.manifest import watermark_of
from connector.spool.reading import Spool
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.completing.row_keys import Key, kinds_of
from spark_sink.sinks.shared.completing.spanner_rows import Completion, SpannerRows
from spark_sink.sinks.shared.completing.whole_rows import Read, Values, decoded, key_of
from spark_sink.sinks.shared.dead_letters import Replay
from spark_sink.sinks.shared.known_schemas import KnownSchemas, Rejections
from spark_sink.sinks.shared.replayed_spools import ReplayedSpools, held, replayed_spool
from spark_sink.sinks.spanner.config import Applying, SpannerConfig
from spark_sink.sinks.spanner.connection import SpannerConnection, connected
from spark_sink.sinks.spanner.creation import Creation, prepare
from spark_sink.sinks.spanner.gone import omissions_of
from spark_sink.sinks.spanner.last_changes import LastChange, last_changes
from spark_sink.sinks.spanner.source import check_continues
from spark_sink.sinks.spanner.source_tables import source_tables
from spark_sink.sinks.spanner.writing.destination_names import DestinationNames
from spark_sink.sinks.spanner.writing.planning import WritePlanner
from spark_sink.sinks.spanner.writing.progress import STARTS_OVER, Claimed
from spark_sink.sinks.spanner.writing.row_merger import KeyedChange
from spark_sink.sinks.spanner.writing.units import Unit
from spark_sink.sinks.spanner.writing.writer import UnitWriter
from spark_sink.sources.changes.known_tables import KnownTables
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.spool_copies import check_copy


@contextmanager
def replay_into(config: Config) -> Iterator[Replay]:
    """A replay of dead letters, which holds the sink's lock and the bookkeeping row.

    Raises:
        SpoolError: there is no spool, or the sink has applied nothing of it, or the destination was restored.
        SpoolMismatchError: it is another stream's.
        SpoolInUseError: the sink runs.
        SinkError: the source's rows are not what the destination should have.
        SpannerCdcError: from the replay, too: a database cannot be used, or no longer keeps the rows.
    """
    sink = config.sink
    assert isinstance(sink, SpannerConfig)
    spool = replayed_spool(config)
    if config.source.skip_transaction_tags:
        raise SinkError(
            "dead letters of sink spanner cannot be replayed with source.skip_transaction_tags: the source has changes"
            " that the destination should not have, or has newer ones of",
            hint="`spanner-cdc verify --against` names the rows that differ; write those, then remove the files.",
        )
    with held(spool, config) as spools:
        known = find(spool, sink.name)
        if known is None or not known.at:
            raise SpoolError(
                "the sink has applied no changes yet", hint="Run it until it has, stop it, and replay again."
            )
        target = sink.address(config.source)
        prepare(target)
        with connected(target, sink.transaction_tag, spool, sink.name, {}) as connection:
            claimed = connection.progress.claim(None)
            check_continues(claimed.position, known.epoch + 1)
            identity = claimed.identity or (known.at if claimed.epoch == known.epoch else "")
            check_copy(spool, "what the destination has applied", Offset(claimed.epoch, at=identity), STARTS_OVER)
            watermark = watermark_of(identity) if identity and not claimed.position.events else None
            yield _SpannerReplay(config, spool, spools, connection, claimed, watermark)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a table: the text of a JSON object with its key, and the indexes of its dead letters in their batch."""

    key: str
    indexes: list[int]


class _SpannerReplay:
    """Writes rows as they were at a timestamp; ``watermark`` is None if no timestamp has the destination's state."""

    def __init__(
        self,
        config: Config,
        spool: Spool,
        spools: ReplayedSpools,
        connection: SpannerConnection,
        claimed: Claimed,
        watermark: int | None,
    ) -> None:
        assert isinstance(config.sink, SpannerConfig)
        self._spool = spool
        self._spools = spools
        self._connection = connection
        self._position = claimed.position
        self._watermark = watermark
        self._target = config.sink.address(config.source)
        self._of = config.source.address
        self._creation = Creation.of(config, config.sink)
        self._applying = replace(Applying.of(config.sink), mode="rows")
        self._schemas = KnownSchemas(spool)
        self._tables = KnownTables(spool)
        known = self._tables.read_once()
        self._keys = {name: known.newest(name).primary_keys for name in known.names()}
        self._source = SpannerRows(Completion.reading(config.source))
        self._has_written: set[str] = set()

    def send(self, name: str, rows: pa.RecordBatch) -> Rejections | None:
        """Writes the rows of a dead-letter file as the source has them; returns those that are rejected."""
        if not self._spools.has(name):
            return _all(rows, "it is of another spool: replay it with that spool (spool.path), or remove it")
        watermark = self._watermark
        if watermark is None or self._spools.will_repeat(name, rows) or self._is_before_a_backfill(watermark):
            return None
        return self._schemas.sent(rows, lambda known: self._send(known, watermark))

    def _is_before_a_backfill(self, watermark: int) -> bool:
        return any(one.document.timestamp > watermark for one in backfills(self._spool))

    def _send(self, rows: pa.RecordBatch, watermark: int) -> Rejections:
        table: str = rows.column("object")[0].as_py()
        schemas = [self._spool.schema(key) for key in rows.column("schema_key").to_pylist()]
        schema = self._tables.newest(table) if table in self._keys else schemas[-1]
        found, rejected = _rows(rows, schemas, schema)
        if not found:
            return rejected
        if self._has_another_key(schema):
            return _all(rows, f"table {table} was created again with another key: remove it")
        if self._of.columns is not None and (hashed := self._of.columns.hashed_key(table, schema.primary_keys)):
            return _all(rows, f"{HASH} hashes {table}.{hashed}, by which it would be looked up: run a backfill instead")
        try:
            now = self._rows_as_of(watermark, schema, [row.key for row in found.values()])
        except NoSuchTableError:
            why = f"the source had no table {table} as of {format_rfc3339(watermark)}, the destination's last epoch"
            return _all(rows, f"{why}: replay it after a later one, or remove it if the table was dropped")
        there = self._connection.there
        omissions = omissions_of(self._of, self._creation, self._target, self._tables, self._applying, there)
        keys, columns = {**self._keys, table: schema.primary_keys}, {table: [one.name for one in schema.columns]}
        planner = WritePlanner(self._applying, there.tables, keys, omissions, columns)
        last: Mapping[Key, LastChange] = {}
        if self._applying.metadata and not planner.why_not(table, ()):
            names = DestinationNames(self._applying, there.tables)
            last = last_changes(self._target, names, schema, [row.key for row in found.values()])
        rejected += self._written(planner, _changes(rows, found, now, last, schema.key))
        if len(rejected) < rows.num_rows and not planner.why_not(table, ()):
            self._has_written.add(table)
        return sorted(rejected)

    def _has_another_key(self, schema: TableSchema) -> bool:
        """True if the source's table has another key than the newest change of it: its former rows are gone."""
        known = (source_tables(self._of) or {}).get(schema.table)
        if known is None:
            return False
        types = {name: type_code(type_json) for name, type_json in _key_types(schema)}
        return {name: known.types.get(name, "") or types.get(name, "") for name in known.key} != types

    def _rows_as_of(self, watermark: int, schema: TableSchema, keys: Sequence[str]) -> Mapping[Key, Values]:
        columns = tuple(column.name for column in schema.columns if column.name not in schema.primary_keys)
        try:
            return self._source.rows(Read(schema.table, columns, schema.primary_keys, tuple(keys), watermark)).rows
        except VersionRetentionError as error:
            raise SinkError(
                f"the source no longer keeps its rows as of {format_rfc3339(watermark)}, the destination's last epoch"
                f" ({error})",
                hint="Run the sink until it has applied the newest epochs, stop it, and replay again.",
            ) from error

    def _written(self, planner: WritePlanner, changes: list[KeyedChange]) -> Rejections:
        if not changes:
            return []
        unit = Unit(self._position, self._position, [changes])
        with closing(UnitWriter(planner, self._connection.progress, self._applying)) as writer:
            return [(one.change.at[1], one.why) for written in writer.write(unit) for one in written.rejected]

    def tried(self, table: str, *, left: int) -> None:
        """A table whose last dead letter is written is no longer stopped."""
        if not left and table in self._has_written:
            self._spools.resume(table)


def _all(rows: pa.RecordBatch, why: str) -> Rejections:
    return [(index, why) for index in range(rows.num_rows)]


def _rows(
    rows: pa.RecordBatch, schemas: Sequence[TableSchema], newest: TableSchema
) -> tuple[Mapping[Key, _Row], Rejections]:
    """The rows of a table that dead letters are of, and the dead letters that have no such key."""
    found: dict[Key, _Row] = {}
    rejected: Rejections = []
    key_types = _key_types(newest)
    for index, (payload, schema) in enumerate(zip(rows.column("payload").to_pylist(), schemas, strict=True)):
        if _key_types(schema) != key_types:
            rejected.append((index, f"table {newest.table} was created again with another key: remove it"))
            continue
        try:
            values = decoded(payload)
            text = msgspec.json.encode({name: values[name] for name in newest.primary_keys}).decode()
        except (msgspec.MsgspecError, KeyError):
            rejected.append((index, f"its payload lacks the key of table {newest.table}: remove it"))
            continue
        key = key_of(values, newest.primary_keys, kinds_of(newest))
        found.setdefault(key, _Row(text, [])).indexes.append(index)
    return found, rejected


def _key_types(schema: TableSchema) -> Sequence[tuple[str, str]]:
    types = {column.name: column.type for column in schema.columns}
    return [(name, types[name]) for name in schema.primary_keys]


def _changes(
    rows: pa.RecordBatch,
    found: Mapping[Key, _Row],
    now: Mapping[Key, Values],
    last: Mapping[Key, LastChange],
    schema_key: str,
) -> list[KeyedChange]:
    """The changes that lead to the rows' present values, one for each dead letter."""
    metadata = rows.column("source_metadata")
    table: str = rows.column("object")[0].as_py()
    mod_types = metadata.field("mod_type").to_pylist()
    events = [
        LastChange(*one)
        for one in zip(
            rows.column("change_sequence_number").to_pylist(),
            metadata.field("commit_timestamp").to_pylist(),
            strict=True,
        )
    ]
    changes: list[KeyedChange] = []
    for key, row in found.items():
        values = now.get(key)
        if values is None and all(mod_types[index] != "DELETE" for index in row.indexes):
            continue
        payload = row.key
        if values is not None:
            payload = msgspec.json.encode({**decoded(row.key), **values}).decode()
        mod_type = "DELETE" if values is None else "UPDATE"
        newest = max([events[index] for index in row.indexes] + [last.get(key, LastChange("", ""))])
        changes += [
            KeyedChange(
                table, mod_type, True, payload, newest.commit_timestamp, newest.sequence, "", (0, index), schema_key
            )
            for index in row.indexes
        ]
    return changes
