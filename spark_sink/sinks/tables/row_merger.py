"""Merges a micro-batch's changes of a table: one row for each key, in Spark SQL alone.

An INSERT or a DELETE replaces everything before it. An UPDATE of a change stream that captures only changes changes the
columns that it names, so each column has the value of the newest change that named it. A row that is deleted in the end
has its last values, for tables that keep them.
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import TimestampType

from spark_sink.sinks.tables.lake_table import (
    DELETED,
    FORMER,
    PRESENT,
    REPLACED,
    SEQUENCE,
    TIMESTAMP,
    TYPE,
    LakeTable,
)

_NEXT, _VALUES, _LAST_VALUES, _SINCE, _ONE = (
    f"spanner-cdc.{name}" for name in ("next", "values", "last", "since", "one")
)
"""Columns of intermediate rows, beside those of a table of Spanner, whose names have no dash and no dot."""


def for_table(table: LakeTable, typed: DataFrame) -> DataFrame:
    """Typed rows with the table's own names, whose commit timestamp is a timestamp, with microseconds."""
    text = FORMER[TIMESTAMP]
    rows = typed.withColumn(text, F.col(text).cast(TimestampType()))
    return rows.withColumnsRenamed({former: table.own[name] for name, former in FORMER.items()})


def after(rows: DataFrame, column: str, done: int, first: int) -> DataFrame:
    """The rows of the epochs after ``done``; ``first`` is their first epoch, which is mostly a later one.

    A number in a filter is in the code that Spark generates: each micro-batch would have classes of its own.
    """
    return rows if first > done else rows.where(F.col(column) > done)


def newest(table: LakeTable, rows: DataFrame, *, keeps_deleted: bool) -> DataFrame:
    """The newest change of each key, of changes that hold whole rows.

    A window needs one sort. An aggregation of rows with text needs one before the shuffle, too, where most keys have
    one change.

    Args:
        table: the table.
        rows: its changes.
        keeps_deleted: whether a deleted row has its last values, and :data:`REPLACED` where there are any.
    """
    changes = _of_key(table).orderBy(SEQUENCE)
    with_next = rows.withColumn(_NEXT, F.lead(SEQUENCE).over(changes))
    if not keeps_deleted:
        return with_next.where(_named(_NEXT).isNull()).drop(_named(_NEXT))
    values = [name for name in table.columns if name not in table.primary_key]
    of_values = F.when(~F.col(DELETED), F.struct(*map(_named, values), F.lit(1).alias(_ONE)))
    so_far = changes.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    with_values = with_next.withColumn(_VALUES, F.last(of_values, ignorenulls=True).over(so_far))
    return with_values.where(_named(_NEXT).isNull()).select(
        *(_named(name) for name in table.primary_key),
        *(_named(_VALUES).getField(name).alias(name) for name in values),
        *map(F.col, (table.own[TIMESTAMP], SEQUENCE, DELETED)),
        _named(_VALUES).isNotNull().alias(REPLACED),
    )


def merged(table: LakeTable, rows: DataFrame) -> DataFrame:
    """The changes of each key as one, with :data:`PRESENT` and :data:`REPLACED`."""
    keys = _of_key(table)
    kind, sequence = F.col(table.own[TYPE]), F.col(SEQUENCE)
    is_delete = kind == F.lit("DELETE")
    last_values = F.max(F.when(~is_delete, sequence)).over(keys)
    is_last_delete = is_delete & (_named(_LAST_VALUES).isNull() | (sequence > _named(_LAST_VALUES)))
    replaces = (kind != F.lit("UPDATE")) & ~is_last_delete
    since = F.max(F.when(replaces, sequence)).over(keys)
    counted = rows.withColumn(_LAST_VALUES, last_values).withColumn(_SINCE, since)
    left = counted.where(_named(_SINCE).isNull() | (sequence >= _named(_SINCE)))
    names = F.when(~is_delete, F.col(PRESENT))
    values = [
        F.max_by(_named(name), F.when(F.array_contains(names, F.lit(name)), sequence)).alias(name)
        for name in table.columns
        if name not in table.primary_key
    ]
    of_last = [F.max_by(F.col(name), sequence).alias(name) for name in (table.own[TIMESTAMP], DELETED)]
    return _by_key(
        table,
        left,
        *values,
        *of_last,
        F.max(sequence).alias(SEQUENCE),
        F.array_distinct(F.flatten(F.collect_list(names))).alias(PRESENT),
        F.bool_or(replaces).alias(REPLACED),
    )


def _of_key(table: LakeTable) -> WindowSpec:
    """The changes of a key; a table without a key has one row at most."""
    return Window.partitionBy(*([_named(name) for name in table.primary_key] or [F.lit(1)]))


def _by_key(table: LakeTable, rows: DataFrame, *values: Column) -> DataFrame:
    """Aggregates by key; a table without a key has one row at most."""
    if table.primary_key:
        return rows.groupBy(*(_named(name) for name in table.primary_key)).agg(*values)
    return rows.groupBy(F.lit(1).alias(_ONE)).agg(*values).drop(_named(_ONE))


def _named(name: str) -> Column:
    """A column by its name, whatever characters it has."""
    return F.col(f"`{name.replace('`', '``')}`")
