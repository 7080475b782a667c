"""What a format of tables must do, so that each epoch is in a table exactly once.

A commit to a table holds whole epochs, and with them, in the same commit, the number of the last one. Whoever commits
reads that number first, and leaves out the epochs up to it: whatever was killed when, an epoch is neither missing nor
there twice. The number is kept under a name of the spool and the consumer, for a table may be fed by several.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from spark_sink.errors import SinkError
from spark_sink.tables.config import TableOptions
from spark_sink.tables.lake_table import LakeTable, add_statement, create_statement, quoted


class TableStore(ABC):
    """The tables of one format below a folder or in a database.

    Args:
        spark: the session whose options commits are made with.
        options: where the tables are, and what is in them.
        progress: the name under which a table keeps its last epoch.
    """

    provider: ClassVar[str]
    """The format's name in Spark SQL."""

    before_rename: ClassVar[str] = ""
    """What comes before a column can be renamed, for a hint."""

    merged: ClassVar[Mapping[str, str]] = {}
    """Properties of a table that rows are merged into, which can be overridden."""

    copies_source: ClassVar[bool] = False
    """Whether a merge copies what it merges before it reads it twice."""

    def __init__(self, spark: SparkSession, options: TableOptions, progress: str) -> None:
        self._spark = spark
        self._options = options
        self._progress = progress

    @abstractmethod
    def target(self, name: str) -> str:
        """A table as a statement names it."""

    @abstractmethod
    def applied(self, name: str) -> int:
        """The last epoch that a table has; 0 if it has none, or none is known."""

    @abstractmethod
    def append(self, rows: DataFrame, name: str, first: int, last: int) -> None:
        """Commits rows of the epochs from ``first`` to ``last``, with the last one's number."""

    @contextmanager
    @abstractmethod
    def committing(self, last: int) -> Iterator[None]:
        """Every statement that commits meanwhile commits also the number of the last epoch."""

    def prepare(self, table: LakeTable) -> None:
        """Creates a table, or adds the columns that it lacks.

        Raises:
            SinkError: a column has another type there.
        """
        appends = self._options.mode == "append"
        wanted = table.all_columns(appends=appends)
        target = self.target(table.name)
        properties = {**({} if appends else self.merged), **self._options.properties}
        self._spark.sql(create_statement(target, self.provider, wanted, properties))
        found = {field.name.lower(): field.dataType.simpleString() for field in self._spark.table(target).schema.fields}
        added = {name: kind for name, kind in wanted.items() if name.lower() not in found}
        if added:
            self._spark.sql(add_statement(target, added))
        known = {name: found[name.lower()] for name in wanted if name.lower() in found}
        check_types(table, target, known, wanted, self.before_rename)

    def _in_database(self, name: str) -> str:
        parts = [*(self._options.database or "").split("."), name]
        return ".".join(map(quoted, parts))


def check_types(
    table: LakeTable, target: str, found: Mapping[str, str], wanted: Mapping[str, str], before_rename: str = ""
) -> None:
    """Compares the columns that a table has with those that are wanted.

    Raises:
        SinkError: the type of one differs.
    """
    for name, kind in found.items():
        if kind != wanted[name]:
            raise SinkError(
                f"column {name} of table {table.source} is {wanted[name]}, but in {target} it is {kind}",
                hint=f"Rename it there ({before_rename}ALTER TABLE {target} RENAME COLUMN {quoted(name)} TO ...): it is"
                " added again.",
            )


@contextmanager
def session_options(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    """Sets options of a session, and takes them back."""
    before = {name: spark.conf.get(name, None) for name in options}
    try:
        for name, value in options.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)
