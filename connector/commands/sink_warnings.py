"""What a file sink's readers should know before they read: it keeps nothing from being written. Pure."""

from collections.abc import Iterable, Iterator

from connector.bigquery_table import WHOLE_ROWS
from connector.config import FilesConfig
from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema

_TIMESTAMP = SpannerType(ColumnKind.TIMESTAMP)
_ALTERATIONS = {
    "googlesql": "ALTER CHANGE STREAM `{}` SET OPTIONS (value_capture_type = 'NEW_ROW')",
    "postgresql": "ALTER CHANGE STREAM \"{}\" SET (value_capture_type = 'NEW_ROW')",
}
"""By the dialect's name; a change stream's name holds letters, digits and underscores only."""


def whole_rows_statement(change_stream: str, dialect: str) -> str:
    """The statement that makes a change stream capture whole rows."""
    return _ALTERATIONS[dialect].format(change_stream)


def warnings_of_files(
    sink: FilesConfig, change_stream: str, value_capture_type: str, dialect: str, tables: Iterable[TableSchema]
) -> Iterator[str]:
    """What to know of the files of a change stream, each in a sentence after its field."""
    if value_capture_type not in WHOLE_ROWS:
        yield (
            f"source.change_stream: {change_stream} captures {value_capture_type}, so that an UPDATE holds the key and"
            " what it modified, and no other column: a reader that replaces whole rows, as the Dataflow templates do,"
            f" makes the others NULL. What helps: {whole_rows_statement(change_stream, dialect)}"
        )
    if sink.format == "avro" and sink.timestamps == "micros":
        for table in tables:
            keys = ", ".join(timestamp_keys(table))
            if keys:
                yield (
                    f"sink.timestamps: {keys} in the key of table {table.table} has nanoseconds, and Avro's timestamps"
                    " have microseconds: events whose key would be cut become dead letters; text keeps all digits"
                )


def timestamp_keys(table: TableSchema) -> list[str]:
    """The columns of a table's key that are timestamps."""
    return [
        column.name
        for column in table.columns
        if column.is_primary_key and SpannerType.parse(column.type) == _TIMESTAMP
    ]
