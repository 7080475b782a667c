"""The tables of the sink, read for ``spanner-cdc verify``."""

import json
import math
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import islice

import orjson
import pyarrow as pa

from connector.config.replicas import Digest, Replica, Selection, ValuePrecision
from connector.config.sections import SourceConfig
from connector.core.schemas import TableSchema
from connector.core.timestamps import MICROSECOND, MILLISECOND, format_rfc3339, unix_nanoseconds
from connector.errors import ConfigurationError
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery.client import BigQueryClient, ExistingTable
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.replica_statements import digest_statement, has_digests, rows_statement
from spark_sink.sinks.bigquery.tables.table import CHANGELOG, MERGE, BigQueryTable, TableColumn, bigquery_table
from spark_sink.sinks.shared.feed import delivered_up_to
from spark_sink.sinks.shared.replica_rows import events_of, sort_keys_of

_ROWS_AT_ONCE = 5000
_KINDS = {"UPDATE-INSERT": "UPDATE"}


class BigQueryReplica(Replica):
    """Tables of the modes merge, merge-load and append-only.

    In the mode merge a row names the millisecond of its last change, so that the timestamp is the last microsecond of
    a millisecond.

    Args:
        sink: the sink's options.
        source: the database that they replicate.
        spool: the spool's path.

    Raises:
        ConfigurationError: the mode is changelog.
        SinkError: nothing was delivered yet.
    """

    def __init__(self, sink: BigQueryConfig, source: SourceConfig, spool: str) -> None:
        if sink.mode == CHANGELOG:
            raise ConfigurationError(["sink.mode: tables of the mode changelog cannot be verified"])
        stored = Spool.at(absolute(spool))
        self.delivered = delivered_up_to(stored, sink.name)
        self._mode = sink.mode
        self._target = sink.target(source)
        self._options = sink.table_options(stored.header().default_schema or "")
        self._client = BigQueryClient(self._target)
        self._found: dict[str, tuple[BigQueryTable, ExistingTable | None]] = {}
        self.name = f"BigQuery's {self._target.project}.{sink.dataset}"
        self.keeps_history = sink.mode == "append-only"
        self.precision = ValuePrecision(
            timestamp=1 if sink.timestamps == "text" else MICROSECOND,
            null_array_is_empty=sink.arrays == "repeated",
            json_has_doubles=True,
        )

    def latest(self, timestamp: int) -> int:
        """In the mode merge the end of a millisecond, so that what changed later is known exactly."""
        if self._mode != MERGE:
            return super().latest(timestamp)
        return (timestamp + MICROSECOND) // MILLISECOND * MILLISECOND - MICROSECOND

    def check_repair(self, tables: Mapping[str, TableSchema]) -> None:
        """Refuses tables whose partitions expire: BigQuery deletes the rows again that each repair sends."""
        expiring = [one.table for one in tables.values() if (found := self._table(one)[1]) and found.expires]
        if expiring:
            why = f"BigQuery deletes old partitions of {', '.join(expiring)}, whose rows each repair sends again"
            way = "name other tables with --tables, or remove the expiry with ALTER TABLE meanwhile"
            raise ConfigurationError([f"--repair: {why}: {way}"])

    def note(self) -> str:
        """The tables whose rows may be old, and those whose old rows BigQuery deletes."""
        expiring = sorted(table for table, (_, found) in self._found.items() if found and found.expires)
        deleted = (
            f"BigQuery deletes old partitions of {', '.join(expiring)}: their rows are missing" if expiring else ""
        )
        return "; ".join(filter(None, (self._staleness(), deleted)))

    def _staleness(self) -> str:
        old = {
            found.max_staleness: table.name
            for table, found in self._found.values()
            if found is not None and found.max_staleness and self._mode == MERGE
        }
        if not old:
            return ""
        staleness, name = next(iter(old.items()))
        return (
            f"with max_staleness BigQuery may return rows as old as that (table {name}: {staleness}):"
            " verify again once the sink has been idle for so long, or set max_staleness to 0 meanwhile"
        )

    def size(self, tables: Mapping[str, TableSchema]) -> int:
        """The size of the tables."""
        found = [self._table(schema)[1] for schema in tables.values()]
        return sum(one.bytes or 0 for one in found if one is not None)

    def digests(self, table: TableSchema, timestamp: int, count: int) -> Mapping[int, Digest] | None:
        """Computed by one query."""
        made, found = self._table(table)
        if found is None:
            return {}
        if not has_digests(made, found.fields):
            return None
        sql = digest_statement(made, table, found.fields, self._path(made), timestamp, mode=self._mode, count=count)
        rows = self._client.rows(sql, made.dataset, made.name)
        return {int(number): Digest(*map(int, sums)) for number, *sums in rows}

    def changes(self, tables: Mapping[str, TableSchema], wanted: Selection) -> Iterator[pa.RecordBatch]:
        """The rows, by one query for each table."""
        for schema in tables.values():
            made, found = self._table(schema)
            if found is None:
                continue
            columns = [column for column in made.columns if column.field.name.lower() in found.fields]
            by_name = {column.name: column for column in columns}
            keys = [by_name[name] for name in schema.primary_keys if name in by_name]
            if len(keys) < len(schema.primary_keys):
                raise SinkError(f"table {made.dataset}.{made.name} lacks columns of the key of {schema.table}")
            numbers = wanted.numbers.get(schema.table)
            sql = rows_statement(columns, keys, self._path(made), self._mode, numbers, wanted.count)
            found_rows = self._client.rows(sql, made.dataset, made.name)
            while rows := list(islice(found_rows, _ROWS_AT_ONCE)):
                yield self._events(schema.table, columns, rows)

    def _table(self, schema: TableSchema) -> tuple[BigQueryTable, ExistingTable | None]:
        if schema.table not in self._found:
            made = bigquery_table(schema, self._options)
            found = self._client.find(made.dataset, made.name)
            if found is not None and found.requires_filter:
                why = f"BigQuery refuses to read all of table {made.dataset}.{made.name}"
                way = "name other tables with --tables, or end that with ALTER TABLE meanwhile"
                raise ConfigurationError([f"sink.require_partition_filter: {why}: {way}"])
            self._found[schema.table] = made, found
        return self._found[schema.table]

    def _path(self, table: BigQueryTable) -> str:
        return f"{self._target.project}.{table.dataset}.{table.name}"

    def _events(self, table: str, columns: Sequence[TableColumn], rows: Sequence[Sequence[object]]) -> pa.RecordBatch:
        names = [column.name for column in columns]
        payloads, orders, kinds = [], [], []
        for row in rows:
            *values, order, kind = row
            orders.append(_milliseconds(order) if self._mode == MERGE else sort_keys_of(order))
            kinds.append(_KINDS.get(str(kind), str(kind)))
            payloads.append(_json(dict(zip(names, map(_value, values), strict=True))))
        return events_of(table, orders, kinds, payloads)


def _milliseconds(order: object) -> list[str]:
    """The sort keys of a row that names the millisecond of its last change."""
    milliseconds = int(str(order or 0))
    return [str(milliseconds), str(milliseconds * MILLISECOND), "0", "0"]


def _value(value: object) -> object:
    """A value as Datastream's unified types have it."""
    match value:
        case None | bool() | int() | str() | dict():
            return value
        case float():
            return value if math.isfinite(value) else _not_finite(value)
        case Decimal():
            return f"{value:f}"
        case bytes():
            return b64encode(value).decode()
        case datetime():
            return format_rfc3339(unix_nanoseconds(value))
        case date():
            return value.isoformat()
        case list():
            return [_value(element) for element in value]
        case _:
            return str(value)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _json(row: Mapping[str, object]) -> str:
    try:
        return orjson.dumps(row).decode()
    except TypeError:  # an integer beyond 64 bits in a document
        return json.dumps(row)
