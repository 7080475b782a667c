"""Views of appended tables as of the newest published cut. Pure.

A view finds the cut in the table of the cuts, not in its own text. So all views of a query have one and the same cut,
because a query reads every table as of one time. A table that is merged into cannot have such a view: what follows FOR
SYSTEM_TIME AS OF is a constant, and views that are replaced one by one would be of two cuts meanwhile.
"""

from collections.abc import Iterable

from spark_sink.sinks.bigquery.cuts.table import SinkCuts
from spark_sink.sinks.bigquery.history_statements import state_of
from spark_sink.sinks.bigquery.tables.table import CHANGELOG, METADATA, BigQueryTable, Mode, TableColumn, view_name


def view_statement(
    table: BigQueryTable, columns: Iterable[str], keys: Iterable[str], *, project: str, cuts: SinkCuts, mode: Mode
) -> str:
    """Creates or replaces the view of a table.

    Args:
        table: the table.
        columns: its columns in BigQuery.
        keys: the columns of its key, by their names in the source.
        project: of the table.
        cuts: of the sink.
        mode: ``append-only`` or ``changelog``.
    """
    by_name: dict[str, TableColumn] = {column.name: column for column in table.columns}
    path = f"{project}.{table.dataset}"
    relation = state_of(f"{path}.{table.name}", [by_name[name] for name in keys], _is_within(cuts, mode), mode)
    names = ", ".join(f"x.`{name}`" for name in columns)
    return f"CREATE OR REPLACE VIEW `{path}.{view_name(table.name)}` AS SELECT {names} FROM {relation}"


def _is_within(cuts: SinkCuts, mode: Mode) -> str:
    """The condition that a change belongs to the newest cut."""
    own, newest = (
        ("x._metadata_spanner_commit_timestamp", "commit_timestamp")
        if mode == CHANGELOG
        else (f"x.{METADATA}.change_sequence_number", "bound")
    )
    return f"{own} <= {cuts.newest(newest)}"
