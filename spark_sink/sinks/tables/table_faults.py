"""Errors of one table: commits that are tried again, and what stops a table while the others continue.

An error about a value that cannot be written names its table and column, and not the value.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from pyspark.sql import DataFrame
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from connector.core.health.retries import Cause
from connector.telemetry.retrying import attempts
from spark_sink.errors import TableError, clear_line, condition, is_of_statement, is_of_value, text_of
from spark_sink.failures import SPARK_ERRORS
from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sources.changes.typed import columns_not_castable

_P = ParamSpec("_P")
_T = TypeVar("_T")

_ATTEMPTS = 10
"""The number of attempts of a commit if another one, of a backfill or of compaction, comes first."""

_CONFLICT_HINT = "See what else writes it, such as a job that compacts it, and let it run less often."

_CONFLICT = (
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "ValidationException",
    "CommitFailedException",
    "AlreadyExistsException",
    "ALREADY_EXISTS",
    "name already exists",
)
"""Texts in errors of a commit that came second, also if another commit has added a table or a column meanwhile."""

_HALF_CREATED = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
"""In the error about a table that another one creates at the same time: its folder is there before its first version.

A folder with files of others is the same error, and it stays: after the attempts it stops its table.
"""

_MISSING_FILE = re.compile(
    r"FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file ([^\n]+?)\. File does not exist"
    r"|iceberg\.exceptions\.NotFoundException: Failed to open input stream for file: ([^\n]+)"
)
"""Of errors about a file of a table that somebody has removed: of Delta, and of Iceberg, its metadata among them."""

_NO_TABLE = re.compile(
    r"TABLE_OR_VIEW_NOT_FOUND|DELTA_TABLE_NOT_FOUND|DELTA_MISSING_DELTA_TABLE|PATH_NOT_FOUND|PATH_DOES_NOT_EXIST"
    r"|(?:SCHEMA|CATALOG)_NOT_FOUND|NoSuch(?:Table|Namespace|Database)Exception"
)


def is_missing(error: BaseException) -> bool:
    """True if an error says that there is no such table, and not that its catalog does not answer.

    Spark raises the same exception for both: the text decides.
    """
    return _NO_TABLE.search(text_of(error)) is not None


def tried(table: str, commit: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> _T:
    """Commits to a table of Spanner's; tries it again where another commit came before."""

    def cause(error: BaseException) -> Cause:
        del error  # the texts of Delta and Iceberg may have values
        return Cause(f"table {table} cannot be written", "", "others change it at the same time", _CONFLICT_HINT)

    with attempts(cause, table) as noted:
        retrying = Retrying(
            retry=retry_if_exception(lambda error: _has(error, *_CONFLICT, _HALF_CREATED)),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(max=5),
            before_sleep=noted.before_sleep,
            reraise=True,
        )
        return retrying(commit, *args, **options)


@contextmanager
def naming(table: LakeTable, target: str, events: DataFrame) -> Iterator[None]:
    """Writes events of a table; an error of Spark that concerns only this table becomes one that names it.

    Args:
        table: the table.
        target: the table, as a statement names it.
        events: the events, in which the columns of a value that cannot be cast are searched.

    Raises:
        TableError: a value cannot be written, or Spark refuses the table whatever its rows are.
    """
    try:
        with refused(table.source, target):
            yield
    except SPARK_ERRORS as error:
        if not is_of_value(error):
            raise
        columns: list[str] = []
        with suppress(*SPARK_ERRORS):
            columns = columns_not_castable(events, table.source, table.types)
        raise TableError(_line(table, columns, condition(error)), hint=_HINT) from None


@contextmanager
def refused(table: str, target: str) -> Iterator[None]:
    """Surrounds what is done with a table of Spanner.

    Raises:
        TableError: Spark refuses that, whatever the rows are, and may take it of another table.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        if missing := _MISSING_FILE.search(text_of(error)):
            raise TableError(
                f"table {table} cannot be written to {target}: a file of it is missing: {missing[1] or missing[2]}",
                hint="Restore the file, or rename the table there: it is created again, and `spanner-cdc backfill"
                f" --table {table}` brings its rows.",
            ) from error
        if is_of_value(error) or _has(error, *_CONFLICT) or not is_of_statement(error):
            raise
        raise TableError(f"table {table} cannot be written to {target}: {clear_line(error)}") from error


_HINT = "Look for it in `payload` of the source spanner-change-stream, or drop the constraint that forbids it."


def _line(table: LakeTable, columns: list[str], why: str) -> str:
    of_columns = f", {'column' if len(columns) == 1 else 'columns'} {', '.join(columns)}," if columns else ""
    return f"a value of table {table.source}{of_columns} cannot be written to table {table.name}: {why}"


def _has(error: BaseException, *texts: str) -> bool:
    """True if Spark's error has one of the texts: PySpark has no class for most errors of Delta and Iceberg."""
    return isinstance(error, SPARK_ERRORS) and any(text in str(error) for text in texts)
