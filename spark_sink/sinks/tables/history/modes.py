"""A table has versions of rows, or rows as the other modes write them, and not both."""

from collections.abc import Iterable

from spark_sink.errors import TableError
from spark_sink.sinks.tables.lake_table import END, VALID_FROM, LakeTable


def check_mode(table: LakeTable, target: str, found: Iterable[str], mode: str) -> None:
    """Compares what a table has with what is to be written.

    Args:
        table: the table.
        target: the table, as a statement names it.
        found: the columns that are there, in small letters.
        mode: the mode of the sink.

    Raises:
        TableError: the table has versions and the mode is another one, or the other way round.
    """
    has_versions = {VALID_FROM, END} <= {*found} - {name.lower() for name in table.columns}
    if has_versions != (mode == "history"):
        has = "has versions of rows, as mode history" if has_versions else "has no versions of rows, as another mode"
        raise TableError(
            f"table {target} {has} writes them, and the mode is {mode}",
            hint="Use another path or database, or rename the table there: it is created again, and"
            f" `spanner-cdc backfill --table {table.source}` brings the rows that are in Spanner.",
        )
