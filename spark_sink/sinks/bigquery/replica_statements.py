"""The queries by which ``spanner-cdc verify`` reads a table of BigQuery. Pure."""

from collections.abc import Collection, Mapping

from connector.core.column_kinds import ColumnKind
from connector.core.schemas import TableSchema
from connector.core.timestamps import MILLISECOND
from spark_sink.sinks.bigquery.history_statements import state_of
from spark_sink.sinks.bigquery.rows.update_pairs import UPDATE_DELETE
from spark_sink.sinks.bigquery.tables.table import (
    COLUMN_TYPES,
    MERGE,
    METADATA,
    BigQueryTable,
    Field,
    Mode,
    TableColumn,
)

_TIME_DIGITS = 16
"""Of a sequence number, those of the commit timestamp."""

_TEXT_OF: Mapping[ColumnKind, str] = {
    ColumnKind.BOOL: "CAST({0} AS STRING)",
    ColumnKind.INT64: "CAST({0} AS STRING)",
    ColumnKind.STRING: "{0}",
    ColumnKind.BYTES: "TO_HEX({0})",
    ColumnKind.DATE: "CAST({0} AS STRING)",
    ColumnKind.TIMESTAMP: "CAST(UNIX_MICROS({0}) AS STRING)",
    ColumnKind.ENUM: "CAST({0} AS STRING)",
    ColumnKind.PROTO: "TO_HEX({0})",
}
"""The text of a value (:class:`connector.config.replicas.Digest`)."""


def has_digests(table: BigQueryTable, existing: Mapping[str, Field]) -> bool:
    """True if BigQuery can compute the digests of a table, whose existing columns are named in small letters."""
    return all(
        column.kind in _TEXT_OF
        and column.field.type == COLUMN_TYPES[column.kind]
        and _is_as_expected(column, existing.get(column.field.name.lower()))
        for column in table.columns
    )


def _is_as_expected(column: TableColumn, field: Field | None) -> bool:
    if field is None:
        return not column.is_key  # it was added since the last change
    return field.type == column.field.type and not field.repeated


def digest_statement(
    table: BigQueryTable, schema: TableSchema, existing: Mapping[str, Field], path: str, timestamp: int, *, mode: Mode,
    count: int,
) -> str:  # fmt: skip
    """Counts and adds up the rows by bucket: bucket, rows, low, high, later."""
    texts = {column.name: _text(column, existing) for column in table.columns}
    key = _joined([texts[name] for name in schema.primary_keys])
    row = _joined([texts[column.name] for column in schema.columns])
    if mode == "append-only":
        later, relation = "FALSE", _latest(table, schema, path, timestamp)
    else:
        later, relation = _is_later(timestamp, mode), f"`{path}` x"
    return (
        f"SELECT {_bucket('k', count)} AS n, COUNTIF(NOT later),"
        " SUM(IF(later, 0, CAST(CONCAT('0x', SUBSTR(r, 1, 10)) AS INT64))),"
        " SUM(IF(later, 0, CAST(CONCAT('0x', SUBSTR(r, 11, 10)) AS INT64))), COUNTIF(later)"
        f" FROM (SELECT TO_HEX(MD5({key})) AS k, TO_HEX(MD5({row})) AS r, {later} AS later FROM {relation}) GROUP BY n"
    )


def rows_statement(
    columns: Collection[TableColumn],
    keys: Collection[TableColumn],
    path: str,
    mode: Mode,
    buckets: Collection[int] | None,
    count: int,
) -> str:
    """Selects these columns, the order of the change and its type; of all rows, or of those in some buckets."""
    names = [f"x.`{column.field.name}`" for column in columns]
    order = "source_timestamp" if mode == MERGE else "change_sequence_number"
    kind = f"x.{METADATA}.change_type" if mode == "append-only" else "'INSERT'"
    selected = [f"{name} AS c{number}" for number, name in enumerate([*names, f"x.{METADATA}.{order}", kind])]
    where = f" WHERE {kind} IS DISTINCT FROM '{UPDATE_DELETE}'" if mode == "append-only" else ""
    if buckets is not None:
        present = {column.field.name.lower(): column.field for column in keys}
        text = _joined([_text(column, present) for column in keys])
        numbers = ", ".join(map(str, sorted(buckets)))
        where += f"{' AND' if where else ' WHERE'} {_bucket(f'TO_HEX(MD5({text}))', count)} IN ({numbers})"
    return f"SELECT {', '.join(selected)} FROM `{path}` x{where}"


def _latest(table: BigQueryTable, schema: TableSchema, path: str, timestamp: int) -> str:
    """The rows of a history as of a timestamp, as a relation."""
    columns = {column.name: column for column in table.columns}
    condition = f"SUBSTR(x.{METADATA}.change_sequence_number, 1, {_TIME_DIGITS}) <= '{timestamp:016X}'"
    return state_of(path, [columns[name] for name in schema.primary_keys], condition, "append-only")


def _is_later(timestamp: int, mode: Mode) -> str:
    """The SQL condition that a row was changed after the timestamp."""
    if mode == MERGE:
        return f"COALESCE(x.{METADATA}.source_timestamp > {timestamp // MILLISECOND}, FALSE)"
    return f"COALESCE(SUBSTR(x.{METADATA}.change_sequence_number, 1, {_TIME_DIGITS}) > '{timestamp:016X}', FALSE)"


def _bucket(digest: str, count: int) -> str:
    return f"MOD(CAST(CONCAT('0x', SUBSTR({digest}, 1, 8)) AS INT64), {count})"


def _text(column: TableColumn, existing: Mapping[str, Field]) -> str:
    if column.field.name.lower() not in existing:
        return "'n'"
    value = _TEXT_OF[column.kind].format(f"x.`{column.field.name}`")
    return f"COALESCE(CONCAT('v', CAST(BYTE_LENGTH({value}) AS STRING), ':', {value}), 'n')"


def _joined(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"CONCAT({', '.join(texts)})"
