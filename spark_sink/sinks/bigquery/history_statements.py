"""The state to which the rows of an appended table come, in SQL. Pure."""

from collections.abc import Collection

from spark_sink.sinks.bigquery.tables.table import CHANGELOG, METADATA, Mode, TableColumn

_TEMPLATE = "x._metadata_spanner_"
_NO_PARTS = "FLOAT64"
"""The type of a key by which BigQuery does not divide rows."""


def state_of(path: str, keys: Collection[TableColumn], condition: str, mode: Mode) -> str:
    """The newest change of each key that meets a condition, without deletes, as a relation ``x``.

    Args:
        path: the table, ``project.dataset.table``.
        keys: the columns of the key.
        condition: on the columns of ``x``.
        mode: ``append-only`` or ``changelog``.
    """
    if mode == CHANGELOG:  # a row's changes in one transaction are in records of their own
        order = f"{_TEMPLATE}commit_timestamp DESC, SAFE_CAST({_TEMPLATE}record_sequence AS INT64) DESC"
        kind = f"{_TEMPLATE}mod_type"
    else:
        order, kind = f"x.{METADATA}.change_sequence_number DESC", f"x.{METADATA}.change_type"
    named = ", ".join(map(_part, keys))
    by_key = f"PARTITION BY {named} " if named else ""
    return (
        f"(SELECT * FROM `{path}` x WHERE {condition}"
        f" QUALIFY ROW_NUMBER() OVER ({by_key}ORDER BY {order}) = 1) x"
        f" WHERE {kind} != 'DELETE'"
    )


def _part(column: TableColumn) -> str:
    name = f"x.`{column.field.name}`"
    return f"CAST({name} AS STRING)" if column.field.type == _NO_PARTS else name
