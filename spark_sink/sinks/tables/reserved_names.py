"""Names that a format keeps for itself, and that a table or a column of Spanner may have. Pure.

- Iceberg's metadata tables: https://iceberg.apache.org/docs/latest/spark-queries/#inspecting-tables. A table below a
  folder has no namespace before its name, so the catalog takes such a name for that of a metadata table.
- Iceberg's metadata columns: https://iceberg.apache.org/spec/#reserved-field-ids. A table that has one of its own
  cannot be read.
- ``_metadata``, the files that rows are in, in Spark: a MERGE into a table of Delta reads it. It adds columns of its
  own to both sides of its join (``MergeIntoCommandBase`` of Delta has their names).
- Delta's change data feed: https://docs.delta.io/delta-change-data-feed.

The case of a name does not matter.
"""

from collections.abc import Iterable, Mapping

from spark_sink.sinks.tables.lake_table import COMMIT_TIMESTAMP, CUTS, table_name

FORMATS: Mapping[str, str] = {"delta": "Delta", "iceberg": "Iceberg", "parquet": "Parquet"}
"""The formats as people write them."""

_ICEBERG_TABLES = frozenset({
    "all_data_files", "all_delete_files", "all_entries", "all_files", "all_manifests", "data_files", "delete_files",
    "entries", "files", "history", "manifests", "metadata_log_entries", "partitions", "position_deletes", "refs",
    "snapshots",
})  # fmt: skip

_ICEBERG_COLUMNS = frozenset(
    {"_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id", "_spec_id"}
)

_DELTA_COLUMNS = frozenset({
    "_condition_", "_file_name_", "_metadata", "_row_dropped_", "_row_id_", "_source_row_present_",
    "_target_row_present_",
})  # fmt: skip

_FEED = "delta.enableChangeDataFeed"

_EXCLUDE = "leave the table out (source.tables.exclude)"


def kept_names(table: str, columns: Iterable[str], *, format: str, merges: bool, below_path: bool) -> list[str]:  # noqa: A002 - the option's name
    """The names of a table that the format keeps for itself, in sentences with a hint.

    Args:
        table: the table in Spanner.
        columns: its columns.
        format: ``delta``, ``iceberg`` or ``parquet``.
        merges: whether rows are merged; otherwise they are appended.
        below_path: whether the table is in a folder, and not in a database of Spark's catalog.
    """
    problems = []
    if table_name(table).lower() == CUTS:
        problems.append(f"table {table} has the name of the table of published cuts: {_EXCLUDE}")
    if format == "iceberg" and below_path and table_name(table).lower() in _ICEBERG_TABLES:
        problems.append(
            f"table {table} would be {table_name(table)}, a name that Iceberg keeps for a metadata table where a path"
            f" has the tables: use a database instead, or {_EXCLUDE}"
        )
    kept = _ICEBERG_COLUMNS if format == "iceberg" else _DELTA_COLUMNS if format == "delta" and merges else frozenset()
    if taken := sorted(column for column in columns if column.lower() in kept):
        names = ", ".join(taken)
        problems.append(
            f"table {table} has a column {names}, which {FORMATS[format]} keeps for itself: rename it in Spanner, or"
            f" {_EXCLUDE}"
        )
    return problems


def refused_property(format: str, properties: Mapping[str, str]) -> str:  # noqa: A002 - the option's name
    """The reason why tables cannot be created with these properties, in a sentence; empty if they can be."""
    feeds = any(name.lower() == _FEED.lower() and value.lower() == "true" for name, value in properties.items())
    if format != "delta" or not feeds:
        return ""
    return (
        f"{_FEED}: leave it out. Delta's change data feed keeps the names {COMMIT_TIMESTAMP} and _change_type for"
        " itself, and each table of the sink has one of them. Mode append has a row for each change"
    )
