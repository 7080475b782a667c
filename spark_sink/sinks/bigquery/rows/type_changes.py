"""Rejects rows of an earlier schema, in which a column had another type, because its value would be misread.

A record's values are read by its own column types, and a table in BigQuery has those of the newest schema. So a row
whose schema gives a column another type is rejected if it has a value there. Where changes are merged, a DELETE needs
only its key.
"""

from collections.abc import Mapping

import orjson
import pyarrow as pa

from connector.core.column_kinds import ColumnKind, Layout
from connector.envelope.envelope import DELETE
from connector.errors import SpoolError
from connector.spool.reading import Spool
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTableOptions, TableColumn, bigquery_table
from spark_sink.sinks.shared.known_schemas import Rejections


class FormerTypes:
    """Filters the rows of one table.

    Args:
        table: the table.
        table_options: the options that decide its columns.
        spool: has the schemas that keys name.
    """

    def __init__(self, table: BigQueryTable, table_options: BigQueryTableOptions, spool: Spool) -> None:
        self._table = table
        self._table_options = table_options
        self._spool = spool
        self._keys = frozenset(column.name for column in table.columns if column.is_key)
        self._changed: dict[str, Mapping[str, str]] = {}

    def sift(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int], Rejections]:
        """The rows that can be read by the table's types, the index of each, and why the others cannot."""
        every = list(range(rows.num_rows))
        keys = rows.column("schema_key")
        if not any(self._changes(key) for key in keys.unique().to_pylist()):
            return rows, every, []
        payloads = rows.column("payload").to_pylist()
        mod_types = rows.column("source_metadata").field("mod_type").to_pylist()
        before = rows.column("before").to_pylist() if self._table_options.update_pairs else [None] * rows.num_rows
        rejected: Rejections = []
        for index, (key, mod_type) in enumerate(zip(keys.to_pylist(), mod_types, strict=True)):
            changes = self._changes(key)
            if changes and self._table_options.merges and mod_type == DELETE:
                payloads[index] = self._only_key(payloads[index])
            held = _held(payloads[index]) | _held(before[index] or "{}") if changes else set()
            rejected += [(index, why) for name, why in changes.items() if name in held][:1]
        kept = sorted(set(every) - {index for index, _ in rejected})
        column = rows.schema.get_field_index("payload")
        rows = rows.set_column(column, rows.schema.field(column), pa.array(payloads, rows.schema.field(column).type))
        return rows.take(pa.array(kept, pa.int64())), kept, rejected

    def _changes(self, key: str) -> Mapping[str, str]:
        """The reasons why columns with another type or name in an earlier schema cannot be read, by column."""
        if key not in self._changed:
            then = self._columns(key)
            now = {column.name: column for column in self._table.columns}
            respelled = {name.lower(): name for name in now if name not in then}
            self._changed[key] = {
                name: f"column {name} was {then[name].field.type_text} when the row was changed, and is"
                f" {column.field.type_text} since"
                for name, column in now.items()
                if name in then and _read_as(then[name]) != _read_as(column)
            } | {
                name: f"column {name} is called {respelled[name.lower()]} since the row was changed"
                for name in then
                if name not in now and name.lower() in respelled
            }
        return self._changed[key]

    def _columns(self, key: str) -> Mapping[str, TableColumn]:
        """The columns of a schema by name; none where the schema is another spool's."""
        try:
            schema = self._spool.schema(key)
        except SpoolError:
            if self._spool.has_schema(key):
                raise  # its values would be read by the wrong types
            return {}
        return {column.name: column for column in bigquery_table(schema, self._table_options).columns}

    def _only_key(self, payload: str) -> str:
        return orjson.dumps({name: value for name, value in _row(payload).items() if name in self._keys}).decode()


def _held(payload: str) -> set[str]:
    """The columns for which a row has a value."""
    return {name for name, value in _row(payload).items() if value is not None}


def _row(payload: str) -> dict[str, object]:
    """A row as an object, empty where it is not one; the row is rejected elsewhere."""
    try:
        row = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return {}
    return row if isinstance(row, dict) else {}


def _read_as(column: TableColumn) -> tuple[ColumnKind | None, Layout, str]:
    """Equal for columns whose values are read alike."""
    kind: ColumnKind | None = column.kind.encoded_like
    if column.layout is Layout.JSON_ARRAY and kind not in (ColumnKind.INT64, ColumnKind.JSON):
        kind = None  # the array's JSON is written as Spanner gives it
    return kind, column.layout, column.field.type
