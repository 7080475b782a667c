"""Errors about a value that cannot be written: they name its table and column, and not the value."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_sink.errors import PermanentError, condition, is_of_value
from spark_sink.source.typed import columns_not_castable
from spark_sink.tables.lake_table import LakeTable


@contextmanager
def naming(table: LakeTable, events: DataFrame) -> Iterator[None]:
    """Writes events of a table; an error of Spark about a value becomes one that names the table and the columns.

    Raises:
        PermanentError: a value cannot be written.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if not is_of_value(error):
            raise
        columns: list[str] = []
        with suppress(PySparkException, Py4JError):
            columns = columns_not_castable(events, table.source, table.types)
        raise PermanentError(_line(table, columns, condition(error)), hint=_HINT) from None


_HINT = "Look for it in `payload` of the source spanner-change-stream, or drop the constraint that forbids it."


def _line(table: LakeTable, columns: list[str], why: str) -> str:
    of_columns = f", {'column' if len(columns) == 1 else 'columns'} {', '.join(columns)}," if columns else ""
    return f"a value of table {table.source}{of_columns} cannot be written to table {table.name}: {why}"
