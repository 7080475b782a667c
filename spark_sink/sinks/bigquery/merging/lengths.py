"""Checks that the statements that merge a table's rows are short enough for BigQuery. Pure."""

from spark_sink.sinks.bigquery.merging.changed_keys import backfill_statement, changed_keys, keep_statement
from spark_sink.sinks.bigquery.merging.statements import LONGEST_STATEMENT, merge_statement
from spark_sink.sinks.bigquery.tables.table import BigQueryTable

_BOUNDS = "x" * 40_000
"""As long as the bounds of two keys, and longer."""

_STAGING = "x" * 200
"""As long as a staging table's name, and longer."""


def too_long(table: BigQueryTable, project: str) -> str | None:
    """The reason why a table's columns are too many, or their names too long, for a MERGE; None if there is none.

    A backfill's MERGE is up to half again as long as that of changes. It counts for tables without a backfill, too, so
    that a later one does not fail.
    """
    path = f"{project}.{table.dataset}"
    into, changed, staging = f"{path}.{table.name}", f"{path}.{changed_keys(table).name}", f"{path}.{_STAGING}"
    size = max(
        len(merge_statement(table, into, staging, _BOUNDS)),
        len(backfill_statement(table, into, staging, changed, _BOUNDS)),
        len(keep_statement(table, changed, staging)),
    )
    if size <= LONGEST_STATEMENT:
        return None
    return (
        f"the MERGE of its {len(table.columns)} columns would have {size:,} characters, and BigQuery takes"
        f" {LONGEST_STATEMENT:,}: take mode merge or append-only, or exclude the table"
    )
