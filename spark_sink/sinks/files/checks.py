"""The warnings of a file sink before it writes, for ``spanner-cdc check`` and ``run``. Pure."""

from collections.abc import Iterator, Mapping

from connector.config.sinks import WatchedStream
from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema
from connector.envelope.avro_schema import AVRO_TYPES
from connector.envelope.envelope import WHOLE_ROWS
from spark_sink.sinks.files.config import FilesConfig

_ALTERATIONS = {
    "googlesql": "ALTER CHANGE STREAM `{}` SET OPTIONS (value_capture_type = 'NEW_ROW')",
    "postgresql": "ALTER CHANGE STREAM \"{}\" SET (value_capture_type = 'NEW_ROW')",
}
"""By the dialect's name; a change stream's name holds letters, digits and underscores only."""


def warnings_of_files(sink: FilesConfig, stream: WatchedStream) -> Iterator[str]:
    """Warnings for readers of the files, each a sentence after its field."""
    if stream.value_capture_type not in WHOLE_ROWS and not stream.completes_rows:
        yield (
            f"source.change_stream: {stream.name} captures {stream.value_capture_type}, so that an UPDATE holds only"
            " the key and the columns it modified. A reader that replaces whole rows, as the Dataflow templates do,"
            " makes the others NULL. To capture whole rows:"
            f" {_ALTERATIONS[stream.dialect].format(stream.name)}"
        )
    if sink.format == "avro" and sink.timestamps == "micros":
        for table in stream.tables:
            keys = ", ".join(_timestamp_keys(table))
            if keys:
                yield (
                    f"sink.timestamps: {keys} in the key of table {table.table} has nanoseconds, and Avro's timestamps"
                    " have microseconds: events whose key would be cut become dead letters; text keeps all digits"
                )


def _timestamp_keys(table: TableSchema) -> list[str]:
    """The columns of a table's key that are timestamps."""
    keys = (column for column in table.columns if column.is_primary_key)
    return [column.name for column in keys if SpannerType.parse(column.type) == SpannerType(ColumnKind.TIMESTAMP)]


JSON_TYPES: Mapping[ColumnKind, str] = {
    ColumnKind.BOOL: "true or false",
    ColumnKind.INT64: "number",
    ColumnKind.FLOAT32: "number, or NaN as text",
    ColumnKind.FLOAT64: "number, or NaN as text",
    ColumnKind.NUMERIC: "text of digits",
    ColumnKind.PG_NUMERIC: "text of digits",
    ColumnKind.STRING: "text",
    ColumnKind.BYTES: "base64",
    ColumnKind.DATE: "text",
    ColumnKind.TIMESTAMP: "text",
    ColumnKind.JSON: "nested JSON",
    ColumnKind.UUID: "text",
    ColumnKind.INTERVAL: "text",
    ColumnKind.ENUM: "number",
    ColumnKind.PROTO: "base64",
    ColumnKind.UNKNOWN: "as Spanner gives it",
}
"""The JSON type of a value in a JSON line (docs/files.md)."""


def json_types(table: TableSchema) -> dict[str, str]:
    """The JSON type of each column in JSON lines; an array is an array of it."""
    types = {column.name: SpannerType.parse(column.type) for column in table.columns}
    return {name: f"{'array: ' if one.is_array else ''}{JSON_TYPES[one.kind]}" for name, one in types.items()}


def avro_types(table: TableSchema) -> dict[str, str]:
    """The Avro type of each column; an array is the text of a JSON array unless ``sink.arrays`` says otherwise."""
    types = {column.name: SpannerType.parse(column.type) for column in table.columns}
    return {name: "json" if one.is_array else AVRO_TYPES[one.kind].name for name, one in types.items()}
