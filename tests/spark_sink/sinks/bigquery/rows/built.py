"""Builds rows from events for tests, and decodes them."""

from typing import Any, get_args

import pyarrow as pa
from google.protobuf.message import Message

from benchmarks.rows import message_class
from connector.core.changes import Changes
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.envelope.envelope import EnvelopeBuilder, Source
from emulator.bigquery.rows import is_repeated
from spark_sink.sinks.bigquery.rows.builder import BuiltRows, RowBuilder
from spark_sink.sinks.bigquery.tables.table import BigQueryTableOptions, Mode, bigquery_table
from tests.connector.builders import column, record

NOW = 1_790_000_000_123_456_789
MODES: tuple[Mode, ...] = get_args(Mode)
INT64, BOOL, FLOAT64, FLOAT32, NUMERIC, STRING, BYTES, DATE, TIMESTAMP, JSON = (
    f'{{"code":"{code}"}}'
    for code in ("INT64", "BOOL", "FLOAT64", "FLOAT32", "NUMERIC", "STRING", "BYTES", "DATE", "TIMESTAMP", "JSON")
)
PG_NUMERIC = '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}'
JSONB = '{"code":"JSON","type_annotation":"PG_JSONB"}'


def array_of(element: str) -> str:
    return f'{{"array_element_type":{element},"code":"ARRAY"}}'


def fields_of(message: Message) -> dict[str, Any]:
    """The fields of a message; fails for one that the schema does not have."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is not None:
            found[field.name] = fields_of(value)
        else:
            found[field.name] = list(value) if is_repeated(field) else value
    return found


def decoded(builder: RowBuilder, built: BuiltRows) -> list[dict[str, Any]]:
    """The rows' fields; fails for a row that protobuf would encode differently."""
    of = message_class(builder.descriptor)
    found = []
    for row in built.rows.to_pylist():
        message = of.FromString(row)
        assert message.SerializeToString() == row
        found.append(fields_of(message))
    return found


def enveloped(*records: DataChangeRecord) -> pa.RecordBatch:
    builder = EnvelopeBuilder(Source("p", "i", "d", "Everything", "d"), stream_name=None, read_method="spanner-cdc")
    return builder.build(Changes.of(records), SchemaRegistry(), 1)


def builder_of(columns: tuple[ColumnType, ...], mode: Mode = "append-only", **options: Any) -> RowBuilder:
    return RowBuilder(
        bigquery_table(TableSchema.of("Singers", columns), BigQueryTableOptions("ds", mode, **options)), mode
    )


def change(columns: tuple[ColumnType, ...], *payloads: str, **changed: Any) -> DataChangeRecord:
    """A record whose mods have these payloads, keys among them."""
    mods = tuple(
        Mod(payload, "{}", "{}") if changed.get("mod_type") != "DELETE" else Mod("{}", "{}", payload)
        for payload in payloads
    )
    return record(**{"column_types": columns, "mods": mods, "value_capture_type": "NEW_ROW", **changed})


def of_column(type_json: str, *texts: str, mode: Mode = "append-only", **options: str) -> tuple[list[Any], list[str]]:
    """The values of a column ``v`` with these texts, and why others were rejected."""
    columns = (column("Id", "INT64", 1, key=True), ColumnType("v", type_json, False, 2))
    builder = builder_of(columns, mode, **options)
    built = builder.build(enveloped(change(columns, *(f'{{"Id":"1","v":{text}}}' for text in texts))), now=NOW)
    return [row.get("v") for row in decoded(builder, built)], [one.reason for one in built.rejected]


WIDE = (
    column("Id", "INT64", 1, key=True),
    column("Name", "STRING", 2),
    ColumnType("Tags", array_of(STRING), False, 3),
    column("Code", "STRING", 4, key=True),
)
