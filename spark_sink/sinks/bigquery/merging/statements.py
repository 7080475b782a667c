"""The statements that merge loaded lines into a table. Pure."""

from spark_sink.sinks.bigquery.tables.table import METADATA, BigQueryTable, Field

PRESENT, DELETED, REPLACED = "_spanner_present", "_spanner_deleted", "_spanner_replaced"
"""The columns that a line has beside the table's. The first has a digit for each column, 1 where it is present. The
others say whether the row is deleted, and whether it is new, so that missing columns are NULL. :func:`added` has the
names where a table has such a column itself."""

LONGEST_STATEMENT = 1_000_000
"""Characters of a statement that BigQuery takes (https://cloud.google.com/bigquery/quotas#query_jobs: 1 MB)."""

ALIASES = ("t", "s")
"""Of the target and of the staged lines in a statement."""


def added(table: BigQueryTable) -> tuple[str, ...]:
    """The names :data:`PRESENT`, :data:`DELETED` and :data:`REPLACED`, or similar ones that no column has."""
    return free_names(table, PRESENT, DELETED, REPLACED)


def free_names(table: BigQueryTable, *names: str) -> tuple[str, ...]:
    """These names, with as many underscores appended as it takes for no column to have one of them."""
    taken = {field.name.lower() for field in table.fields}
    while not taken.isdisjoint(names):
        names = tuple(f"{name}_" for name in names)
    return names


def numbers_statement(table: BigQueryTable, into: str, staging: str) -> str:
    """Selects the ``uuid`` of each line in table ``staging`` with a row in ``into``, and that row's sequence number."""
    t, s = free_names(table, *ALIASES)
    number = f"{t}.{METADATA}.change_sequence_number"
    return (
        f"SELECT {s}.{METADATA}.uuid, {number} FROM `{staging}` {s} JOIN `{into}` {t} ON {same_row(table, t, s)}"
        f" WHERE {number} IS NOT NULL"
    )


def same_row(table: BigQueryTable, t: str, s: str) -> str:
    """The condition that two rows, by the aliases of their tables, have the same key.

    A table without a key has one row. Its condition is true of all rows, and an equality of both sides, because
    BigQuery has no outer join without one.
    """
    if not table.primary_key:
        return f"({t}.{METADATA} IS NULL) = ({s}.{METADATA} IS NULL)"
    return " AND ".join(f"{t}.`{name}` = {s}.`{name}`" for name in table.primary_key)


def merge_statement(table: BigQueryTable, into: str, staging: str, bounds: str = "") -> str:
    """Merges the lines in table ``staging`` into table ``into``; a line that is not newer than its row does nothing.

    The row of a table without a key is never removed: deleted, all of it is NULL but its metadata.
    ``bounds`` is a condition that every row with a line meets, so that BigQuery reads no others.
    """
    t, s = free_names(table, *ALIASES)
    present, deleted, replaced = added(table)
    newer = f"{s}.{METADATA}.change_sequence_number > COALESCE({t}.{METADATA}.change_sequence_number, '')"
    whole = f"({s}.{replaced} OR {s}.{deleted})" if table.keeps_deleted else f"{s}.{replaced}"
    changed = [
        f"`{column.field.name}` = IF({whole} OR SUBSTR({s}.{present}, {place}, 1) = '1',"
        f" {s}.`{column.field.name}`, {t}.`{column.field.name}`)"
        for place, column in enumerate(table.columns, 1)
        if not column.is_key
    ]
    changed.append(f"{METADATA} = {s}.{METADATA}")
    return merging(table, into, lines_of(table, staging), bounds, newer, ", ".join(changed))


def merging(
    table: BigQueryTable, into: str, lines: str, bounds: str, newer: str, changed: str, *, fits: str = ""
) -> str:
    """A MERGE that deletes and updates rows by lines, and inserts those without a row.

    Args:
        table: the table.
        into: its path.
        lines: a relation.
        bounds: a condition that every row with a line meets; empty if there is none.
        newer: the condition under which a line replaces its row.
        changed: the columns that it sets, and what may follow that clause.
        fits: the end of the condition under which a line is inserted.
    """
    t, s = free_names(table, *ALIASES)
    deleted = f"{s}.{added(table)[1]}"
    names = ", ".join(f"`{field.name}`" for field in table.fields)
    values = ", ".join(f"{s}.`{field.name}`" for field in table.fields)
    removal = f" WHEN MATCHED AND {newer} AND {deleted} THEN DELETE"
    return (
        f"MERGE `{into}` {t} USING {lines} {s} ON {same_row(table, t, s)}{f' AND {bounds}' if bounds else ''}"
        f"{'' if table.keeps_deleted else removal}"
        f" WHEN MATCHED AND {newer} THEN UPDATE SET {changed}"
        f" WHEN NOT MATCHED{'' if table.keeps_deleted else f' AND NOT {deleted}'}{fits}"
        f" THEN INSERT ({names}) VALUES ({values})"
    )


def lines_of(table: BigQueryTable, staging: str) -> str:
    """The lines of table ``staging`` as a relation, whose documents of JSON are parsed: they are loaded as text."""
    documents = [_parsed(column.field) for column in table.columns if column.field.type == "JSON"]
    return f"(SELECT * REPLACE ({', '.join(documents)}) FROM `{staging}`)" if documents else f"`{staging}`"


def _parsed(field: Field) -> str:
    """A column of JSON, parsed from its texts."""
    name = f"`{field.name}`"
    if not field.repeated:
        return f"PARSE_JSON({name}) AS {name}"
    return f"ARRAY(SELECT PARSE_JSON(e) FROM UNNEST({name}) e WITH OFFSET o ORDER BY o) AS {name}"
