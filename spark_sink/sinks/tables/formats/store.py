"""The interface of a table format, which puts each epoch into a table exactly once.

A commit to a table holds whole epochs, and with them, in the same commit, the number of the last one. Whoever commits
reads that number first, and leaves out the epochs up to it: whatever was killed when, an epoch is neither missing nor
there twice. The number is kept under a name of the spool and the consumer, because several may feed a table. The
epoch's identity is kept with it, because a restored older copy of the spool has other epochs of the same numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from spark_sink.errors import TableError
from spark_sink.sinks.tables.config import INSERTED_TWICE, TableOptions, snapshot_isolation
from spark_sink.sinks.tables.formats.folders import SparkFolders
from spark_sink.sinks.tables.formats.jvm import session_key
from spark_sink.sinks.tables.formats.remembered import Remembered
from spark_sink.sinks.tables.history.modes import check_mode
from spark_sink.sinks.tables.lake_table import CREATED, LakeTable, add_statement, create_statement, quoted, text
from spark_sink.sinks.tables.table_keys import PROPERTY, as_property, check_key, of_property
from spark_sink.sources.changes.offsets import Offset


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """A table that can be written.

    Attributes:
        table: the table, with the names that it has in the destination.
        is_keyed: true if the key by which its rows are merged is known.
    """

    table: LakeTable
    is_keyed: bool


@dataclass(frozen=True, slots=True)
class _Preparation:
    """All that a preparation depends on.

    Attributes:
        state: of the table, before and after; None if it was not looked at.
        options: of the store.
        wanted: the table as it was asked for.
    """

    state: str | None
    options: TableOptions
    wanted: LakeTable


_DETAILS = "# Detailed Table Information"
"""The row of a description after which the columns are over."""

_PREPARED: Remembered[tuple[str, str], tuple[_Preparation, PreparedTable]] = Remembered()
"""The last preparation of each table of this process that changed nothing, or its first one, by session and target.

The state has the table's own id: where a name is another table's by now, its state is another one.
"""


class TableStore(ABC):
    """The tables of one format below a folder or in a database.

    Args:
        spark: the session whose options commits are made with.
        options: where the tables are, and what is in them.
        progress: the name under which a table keeps its last epoch.
    """

    provider: ClassVar[str]
    """The format's name in Spark SQL."""

    log: ClassVar[str]
    """The folder below a table's own that makes it a table of the format."""

    before_rename: ClassVar[str] = ""
    """The steps before a column can be renamed, for a hint."""

    merged: ClassVar[Mapping[str, str]] = {}
    """Properties of a table that rows are merged into, which can be overridden."""

    def __init__(self, spark: SparkSession, options: TableOptions, progress: str) -> None:
        self._spark = spark
        self._options = options
        self._progress = progress
        self._ids: dict[str, str] = {}
        self._new: set[str] = set()

    @abstractmethod
    def target(self, name: str) -> str:
        """A table as a statement names it."""

    @abstractmethod
    def applied(self, name: str) -> Offset:
        """The last epoch that a table has; 0 if it has none, or none is known."""

    def identity(self, name: str) -> str:
        """The id of a table whose last epoch was read, which no other table of its name has; empty if not known."""
        return self._ids.get(name, "")

    def is_new(self, name: str) -> bool:
        """True if a table whose last epoch was read, and is 0, has surely had no commit of an epoch.

        False where the number may only be lost, as that of Iceberg with its snapshots.
        """
        return name in self._new

    def has(self, name: str, epoch: int) -> bool:
        """True if the state that this process knows of a table has an epoch as its last; the destination is not asked.

        A statement that changes no row may have made no commit.
        """
        del name, epoch
        return False

    @abstractmethod
    def append(self, rows: DataFrame, name: str, first: int, last: Offset) -> None:
        """Commits rows of the epochs from ``first`` to ``last``, with the last one's number and identity."""

    def committed(self, name: str, last: Offset) -> None:
        """Is called after each commit to a table, with its last epoch."""
        del name, last

    @contextmanager
    @abstractmethod
    def committing(self, last: Offset) -> Iterator[None]:
        """Every statement that commits meanwhile commits also the number of the last epoch, and its identity."""

    def state(self, name: str) -> str | None:
        """The identity, columns and properties of a table as they are now, whoever has changed them.

        Two states are equal only if a preparation would find the same. It is None if that is not known, or costs as
        much as a preparation: such a table is prepared for each micro-batch.
        """
        del name
        return None

    def created(self) -> Mapping[str, str]:
        """Properties of a table that is created, which can be overridden."""
        return {}

    def prepare(self, table: LakeTable) -> PreparedTable:
        """Creates a table, or adds the columns that it lacks.

        A preparation that left the table's state as it was is remembered, and not repeated until the state is another
        one, or something else is wanted.

        Raises:
            TableError: a column has another type there, rows are merged by another key, or it has versions of rows and
                the mode is not history, or the other way round; or the table is of another format, or isolates merges
                too little.
        """
        key = session_key(self._spark), self.target(table.name)
        known = _PREPARED.get(key)
        # not of a table that may not be there yet: PySpark logs an error for it
        state = self.state(table.name) if known is not None else None
        preparation = _Preparation(state, self._options, table)
        if known is not None and state is not None and known[0] == preparation:
            return known[1]
        prepared = self._prepare(table)
        if known is None or (state is not None and self.state(table.name) == state):
            _PREPARED.put(key, (preparation, prepared))
        return prepared

    def _prepare(self, table: LakeTable) -> PreparedTable:
        appends = self._options.mode == "append"
        target = self.target(table.name)
        own = {} if appends else {**self.merged, **self._options.properties, PROPERTY: as_property(table.primary_key)}
        columns = table.all_columns(self._options.mode)
        properties = {**self.created(), **self._options.properties, **own, CREATED: "true"}
        self._spark.sql(create_statement(target, self.provider, columns, properties))
        self.refresh(target)
        found = {field.name.lower(): field.dataType.simpleString() for field in self._spark.table(target).schema.fields}
        check_mode(table, target, found, self._options.mode)
        table = table.named_as(found)
        wanted = table.all_columns(self._options.mode)
        added = {name: kind for name, kind in wanted.items() if name.lower() not in found}
        if added:
            self._check_provider(target)
            self._spark.sql(add_statement(target, added))
        self.check_types(table, found, wanted)
        if appends:
            return PreparedTable(table, is_keyed=False)
        kept = self._table_properties(table.name)
        if isolation := snapshot_isolation(kept):
            raise TableError(
                f"table {target} has {isolation} = snapshot: {INSERTED_TWICE}",
                hint=f"Run ALTER TABLE {target} UNSET TBLPROPERTIES ('{isolation}'), and take that default out of the"
                " catalog's options.",
            )
        if PROPERTY in kept:
            check_key(table, target, kept[PROPERTY])
        return PreparedTable(table, is_keyed=PROPERTY in kept)

    def _check_provider(self, target: str) -> None:
        """Keeps a table of another format in the database, which lacks columns of the sink's, from getting them.

        Raises:
            TableError: the table is of another format.
        """
        rows = [tuple(row)[:2] for row in self._spark.sql(f"DESCRIBE TABLE EXTENDED {target}").collect()]
        details = rows[rows.index((_DETAILS, "")) :] if (_DETAILS, "") in rows else []
        found = str(dict(details).get("Provider", self.provider)).lower()
        if found != self.provider:
            raise TableError(
                f"{target} is a table of {found}, and not of {self.provider}",
                hint="Use another database, or rename the table there.",
            )

    def is_created(self, name: str) -> bool:
        """True if the property of a table says that a sink has created it, and not somebody else."""
        found = self._spark.sql(f"SHOW TBLPROPERTIES {self.target(name)} ({text(CREATED)})").collect()
        return any(row["value"] == "true" for row in found)

    def names(self) -> list[str]:
        """The tables of the format below the path, or all of the database, sorted, whoever has created them."""
        path = self._options.path
        if path is None:
            shown = self._spark.sql(f"SHOW TABLES IN {'.'.join(self._namespace())}").collect()
            return sorted(row["tableName"] for row in shown)
        folders = SparkFolders(self._spark)
        return sorted(name for name in folders.names(path) if self.log in folders.names(f"{path}/{name}"))

    def columns(self, name: str) -> Mapping[str, str]:
        """The types of a table's columns in Spark SQL, by their names; the table is there."""
        return {field.name: field.dataType.simpleString() for field in self.rows(name).schema.fields}

    def key(self, name: str) -> tuple[str, ...]:
        """The key by which rows of a table are merged; empty if they are not."""
        found = self._table_properties(name).get(PROPERTY)
        return () if found is None else tuple(of_property(found))

    def rows(self, name: str) -> DataFrame:
        """The rows that a table has now; the table is there."""
        target = self.target(name)
        self.refresh(target)
        return self._spark.table(target)

    def refresh(self, target: str) -> None:
        """Makes sure that the session has the newest state of a table, with the commits of other processes."""
        del target

    def check_types(self, table: LakeTable, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Compares the columns that are wanted with those that a table has, by their names in small letters.

        Raises:
            TableError: the type of one differs.
        """
        target = self.target(table.name)
        for name, kind in wanted.items():
            if (there := found.get(name.lower(), kind)) != kind:
                raise TableError(
                    f"column {name} of table {table.source} is {kind}, but in {target} it is {there}",
                    hint=f"{self.type_hint(target, name)} `spanner-cdc backfill --table {table.source}` brings its"
                    " values.",
                )

    def type_hint(self, target: str, column: str) -> str:
        """A hint for a column of another type."""
        renaming = f"ALTER TABLE {target} RENAME COLUMN {quoted(column)} TO ..."
        return f"Rename it there ({self.before_rename}{renaming}): it is added again, empty."

    def _table_properties(self, name: str) -> dict[str, str]:
        return {
            row["key"]: row["value"] for row in self._spark.sql(f"SHOW TBLPROPERTIES {self.target(name)}").collect()
        }

    def _in_database(self, name: str) -> str:
        return ".".join([*self._namespace(), quoted(name)])

    def _namespace(self) -> list[str]:
        return [quoted(part) for part in (self._options.database or "").split(".")]
