"""The statements by which merged changes and a backfill of the same table leave the source's rows. Pure.

A row of a backfill is the source's row as of the backfill's timestamp. It must not restore what was deleted since. Nor
may it be dropped because its row has a later change: where a change stream captures only what changed, that change left
the row's other columns NULL. So while a table's backfill is not done, a table beside it (:func:`changed_keys`) has a
line for each merged change. It has the key, the change sequence number, the columns that the change names, and whether
the change deletes or inserts the row. Lines are there before their changes are visible.
"""

from dataclasses import replace

from spark_sink.sinks.bigquery.merging.statements import (
    ALIASES,
    added,
    free_names,
    lines_of,
    merging,
    same_row,
)
from spark_sink.sinks.bigquery.tables.table import METADATA, BigQueryTable, Field

_NUMBER, _WHOLE, _COLUMNS = "_spanner_number", "_spanner_whole", "_spanner_columns"
_NOTHING = "''"
_ALIASES_WITHIN = ("b", "c", "d")
_PREFIX = "spanner_cdc_changed_"


def changed_keys(table: BigQueryTable) -> BigQueryTable:
    """The table beside a table, in the same dataset, for the keys of its changes while it is backfilled."""
    number, whole, columns = _own(table)
    return replace(
        table,
        name=f"{_PREFIX}{table.name}",
        columns=tuple(column for column in table.columns if column.is_key),
        metadata=(Field(number, "STRING"), Field(whole, "BOOL"), Field(columns, "STRING")),
        primary_key=(),
        clustering=tuple(name for name in table.clustering if name in table.primary_key),
        partition=None,
        unfit=(),
    )


def keep_statement(table: BigQueryTable, changed: str, staging: str) -> str:
    """Adds a line to table ``changed`` for each line of ``staging``, which is to be merged afterwards."""
    (s,) = free_names(table, ALIASES[1])
    present, deleted, replaced = added(table)
    named = [
        f"IF(SUBSTR({s}.{present}, {place}, 1) = '1', ',{column.field.name},', '')"
        for place, column in enumerate(table.columns, 1)
        if not column.is_key
    ]
    names = ", ".join([*(f"`{name}`" for name in table.primary_key), *_own(table)])
    values = "".join(f"{s}.`{name}`, " for name in table.primary_key)
    return (
        f"INSERT INTO `{changed}` ({names})"
        f" SELECT {values}{s}.{METADATA}.change_sequence_number, {s}.{deleted} OR {s}.{replaced},"
        f" CONCAT({', '.join([_NOTHING, *named])}) FROM `{staging}` {s}"
    )


def backfill_statement(table: BigQueryTable, into: str, staging: str, changed: str, bounds: str = "") -> str:
    """Merges a backfill's lines in table ``staging`` into table ``into``.

    A line whose row has no later change is written as it is, or deletes the row. Of a row that later changes decided,
    nothing is written; of another row, the columns that no later change named.
    """
    t, s = free_names(table, *ALIASES)
    deleted = added(table)[1]
    kept_whole, kept = free_names(table, _WHOLE, _COLUMNS)
    number, known = (f"{alias}.{METADATA}.change_sequence_number" for alias in (s, t))
    newer = f"{_commit(number)} >= COALESCE({_commit(known)}, '')"
    metadata = f"{METADATA} = IF({number} > COALESCE({known}, ''), {s}.{METADATA}, {t}.{METADATA})"
    others = [column.field.name for column in table.columns if not column.is_key]
    written = ", ".join([*(f"`{name}` = {s}.`{name}`" for name in others), metadata])
    filled = ", ".join(
        f"`{name}` = IF(STRPOS({s}.{kept}, ',{name},') > 0, {t}.`{name}`, {s}.`{name}`)" for name in others
    )
    fill = (
        f" WHEN MATCHED AND NOT {s}.{deleted} AND NOT {s}.{kept_whole} AND {s}.{kept} IS NOT NULL"
        f" THEN UPDATE SET {filled}"
        if others
        else ""
    )
    lines = f"({_with_changes(table, staging, changed)})"
    return merging(table, into, lines, bounds, newer, f"{written}{fill}", fits=f" AND NOT {s}.{kept_whole}")


def _with_changes(table: BigQueryTable, staging: str, changed: str) -> str:
    """The lines, each with whether later changes decide its row, and the columns that they name: NULL without any."""
    s = free_names(table, *ALIASES)[1]
    b, c, d = free_names(table, *_ALIASES_WITHIN)
    number, whole, columns = _own(table)
    kept_whole, kept = free_names(table, _WHOLE, _COLUMNS)
    noted = f"LOGICAL_OR({c}.{whole}) AS {whole}, STRING_AGG({c}.{columns}, '') AS {columns}"
    both = f"`{staging}` {b} JOIN `{changed}` {c}"
    is_later = f"{_commit(f'{c}.{number}')} > {_commit(f'{b}.{METADATA}.change_sequence_number')}"
    if table.primary_key:
        keys = ", ".join(f"{b}.`{name}`" for name in table.primary_key)
        later = f"SELECT {keys}, {noted} FROM {both} ON {same_row(table, c, b)} AND {is_later} GROUP BY {keys}"
        joined = f"LEFT JOIN ({later}) {d} ON {same_row(table, d, s)}"
    else:  # its only row has one summary of its notes
        joined = f"CROSS JOIN (SELECT {noted} FROM {both} ON {is_later}) {d}"
    return (
        f"SELECT {s}.*, COALESCE({d}.{whole}, FALSE) AS {kept_whole}, {d}.{columns} AS {kept}"
        f" FROM {lines_of(table, staging)} {s} {joined}"
    )


def _commit(number: str) -> str:
    """The commit timestamp of a change sequence number, as text: a backfill's rows hold all changes up to theirs."""
    return f"SUBSTR({number}, 1, 16)"


def _own(table: BigQueryTable) -> tuple[str, ...]:
    """The columns of the table beside a table, which no column of the table is called."""
    return free_names(table, _NUMBER, _WHOLE, _COLUMNS)
