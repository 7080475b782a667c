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

from collections.abc import Collection, Iterable, Mapping

from spark_sink.sinks.tables.lake_table import CUTS, table_name

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

FEED = "delta.enableChangeDataFeed"
"""The property of a table with which Delta records what each commit changes."""

_FEED_COLUMNS = frozenset({"_commit_version"})
"""The columns of the feed whose names :func:`spark_sink.typed` does not have."""

_LONGEST = 255
"""Bytes of the name of a folder."""

_EXCLUDE = "leave the table out (source.tables.exclude)"


def kept_names(
    table: str,
    columns: Collection[str],
    *,
    format: str,  # noqa: A002 - the option's name
    merges: bool,
    below_path: bool,
    properties: Mapping[str, str],
) -> list[str]:
    """The names of a table that the format keeps for itself or no disk takes, in sentences with a hint.

    Args:
        table: the table in Spanner.
        columns: its columns.
        format: ``delta``, ``iceberg`` or ``parquet``.
        merges: whether rows are merged; otherwise they are appended.
        below_path: whether the table is in a folder, and not in a database of Spark's catalog.
        properties: those of a table that is created.
    """
    problems = []
    if table_name(table).lower() == CUTS:
        problems.append(f"table {table} has the name of the table of published cuts: {_EXCLUDE}")
    if below_path and (size := len(table_name(table).encode())) > _LONGEST:
        problems.append(
            f"table {table} would be a folder with a name of {size} bytes, and a disk takes {_LONGEST} at most: rename"
            f" it in Spanner, or {_EXCLUDE}"
        )
    if format == "iceberg" and below_path and table_name(table).lower() in _ICEBERG_TABLES:
        problems.append(
            f"table {table} would be {table_name(table)}, a name that Iceberg keeps for a metadata table where a path"
            f" has the tables: use a database instead, or {_EXCLUDE}"
        )
    merging = _DELTA_COLUMNS if format == "delta" and merges else frozenset()
    kept = _ICEBERG_COLUMNS if format == "iceberg" else merging
    if names := _listed(columns, kept):
        problems.append(
            f"table {table} has a column {names}, which {FORMATS[format]} keeps for itself: rename it in Spanner, or"
            f" {_EXCLUDE}"
        )
    if format == "delta" and _has_feed(properties) and (names := _listed(columns, _FEED_COLUMNS)):
        problems.append(
            f"table {table} has a column {names}, which Delta's change data feed keeps for itself: leave out {FEED},"
            f" rename the column in Spanner, or {_EXCLUDE}"
        )
    return problems


def _listed(columns: Iterable[str], kept: frozenset[str]) -> str:
    return ", ".join(sorted(column for column in columns if column.lower() in kept))


def _has_feed(properties: Mapping[str, str]) -> bool:
    return any(name.lower() == FEED.lower() and value.lower() == "true" for name, value in properties.items())
