"""The reasons why an existing table cannot be written as it is, and the repairs that BigQuery allows. Pure.

The recommended statements are those that Google's documentation allows. A column of the key or of the clustering can be
neither dropped nor renamed (https://cloud.google.com/bigquery/docs/reference/standard-sql/data-definition-language,
DROP COLUMN and RENAME COLUMN), one of the key cannot change its type either, and a table with a primary key cannot be
renamed (https://cloud.google.com/bigquery/docs/primary-foreign-keys, limitations). Such a table is copied by a query,
because BigQuery rejects a copy job while changes are merged into it, and dropped. Any other column is renamed or
dropped, or given a wider type.
"""

from collections.abc import Iterable, Iterator, Mapping

from spark_sink.sinks.bigquery.client import ExistingTable
from spark_sink.sinks.bigquery.rows.reasons import WHOLE_AND_FRACTION
from spark_sink.sinks.bigquery.tables.table import IS_DELETED, METADATA, BigQueryTable, Field

_WIDER: Mapping[str, frozenset[str]] = {
    "INT64": frozenset({"NUMERIC", "BIGNUMERIC", "FLOAT64"}),
    "NUMERIC": frozenset({"BIGNUMERIC", "FLOAT64"}),
}
"""The types into which SET DATA TYPE converts a column with its values, by type."""


def mismatches(name: str, table: BigQueryTable, existing: ExistingTable) -> Iterator[str]:
    """The reasons why an existing table cannot be written as it is, each in a sentence with the repair.

    Args:
        name: ``project.dataset.table``.
        table: as it should be.
        existing: as it is.
    """
    yield from _of_columns(name, table, existing)
    yield from _of_others(name, table, existing)
    for key in table.primary_key:
        if key.lower() in existing.collated:
            way = _recreated(name)
            yield f"column {key} of its key has a collation, by which keys that differ in case are one: {way}"
    merged = bool(table.primary_key) or table.keeps_deleted
    marks_alike = table.keeps_deleted == _keeps_deleted(table, existing)
    if merged and _names(table.primary_key) != _names(existing.primary_key):
        key = ", ".join(table.primary_key)
        way = _recreated(name)
        if not existing.primary_key and marks_alike:
            way = f"give it that key (ALTER TABLE `{name}` ADD PRIMARY KEY ({key}) NOT ENFORCED), or {way}"
        yield f"its key is ({', '.join(existing.primary_key)}) in BigQuery, and would be ({key}): {way}"
    elif merged and not marks_alike:
        lacks = "lacks" if table.keeps_deleted else "has"
        yield f"its {METADATA} {lacks} the field {IS_DELETED} of tables without a key: {_recreated(name)}"


def _of_columns(name: str, table: BigQueryTable, existing: ExistingTable) -> Iterator[str]:
    fixed = _names((*existing.primary_key, *existing.clustering))
    others = {column.field.name for column in table.columns if not column.is_key}
    for field in table.fields:
        there = existing.fields.get(field.name.lower())
        if there is None:
            continue
        is_fixed = field.name.lower() in fixed
        if (there.type, there.repeated) != (field.type, field.repeated) or _rounds(there):
            way = _recreated(name) if is_fixed else _retyped(name, table, there, field)
            yield f"column {field.name} is {there.type_text} in BigQuery, and would be {field.type_text}: {way}"
        elif there.required and field.name in others:
            yield f"column {field.name} cannot be NULL in BigQuery, and a change may lack it: {_nullable(name, there)}"


def _of_others(name: str, table: BigQueryTable, existing: ExistingTable) -> Iterator[str]:
    """The columns of others that a new row must have. Requests with rows do not ask for the defaults of columns."""
    own = {field.name.lower() for field in table.fields}
    if table.primary_key or table.keeps_deleted:
        own |= _names(existing.primary_key)  # another key is a reason of its own
    if table.is_loaded:
        own |= existing.with_default
    for column, there in existing.fields.items():
        if there.required and column not in own:
            yield f"column {there.name} cannot be NULL in BigQuery, and Spanner has none: {_nullable(name, there)}"


def _rounds(there: Field) -> bool:
    """True if BigQuery rounds numbers that the type itself can hold to the parameters of a column's type.

    A length is no reason to stop a table: it is often Spanner's own. A longer text is rejected, which is no silence.
    """
    if not there.parameters or there.type not in WHOLE_AND_FRACTION:
        return False
    precision, scale = (*there.parameters, 0)[:2]
    whole, fraction = WHOLE_AND_FRACTION[there.type]
    return precision - scale < whole or scale < fraction


def _nullable(name: str, there: Field) -> str:
    return f"ALTER TABLE `{name}` ALTER COLUMN {there.name} DROP NOT NULL"


def _keeps_deleted(table: BigQueryTable, existing: ExistingTable) -> bool:
    """True if the existing table marks its row when it is deleted; a column that it lacks is added as it should be."""
    there = existing.fields.get(METADATA)
    return table.keeps_deleted if there is None else any(field.name == IS_DELETED for field in there.fields)


def _recreated(name: str) -> str:
    return (
        "drop the table there, and it is created again, without the rows that do not change again; to keep its rows,"
        f" first run CREATE TABLE `{name}_before` AS SELECT * FROM `{name}`"
    )


def _retyped(name: str, table: BigQueryTable, there: Field, field: Field) -> str:
    is_wider = field.type == there.type or field.type in _WIDER.get(there.type, ())
    if is_wider and not (there.repeated or field.repeated):
        return f"ALTER TABLE `{name}` ALTER COLUMN {there.name} SET DATA TYPE {field.type}"
    until = " until they are written again (or the table is backfilled, once there is a backfill)"
    return (
        f"ALTER TABLE `{name}` RENAME COLUMN {there.name} TO {there.name}_before, or DROP COLUMN {there.name}, and it"
        f" is added again; existing rows have NULL in it{until if table.primary_key else ''}"
    )


def _names(key: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in key)
