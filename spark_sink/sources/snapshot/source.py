"""The data source ``spanner-snapshot``: the rows of a table as of a timestamp, read by tasks from Spanner.

The timestamp is chosen once, when the DataFrame is made: each action on it reads the same rows. Spark's Python data
sources know nothing of the columns that a query needs, so the option ``columns`` selects them.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from connector.core.dialects import Dialect
from connector.core.records import ColumnType
from connector.core.timestamps import format_rfc3339
from connector.log import Log
from connector.spanner.snapshot.arrow_types import arrow_schema
from connector.spanner.snapshot.database import DatabaseNow
from connector.spanner.snapshot.partitions import Snapshot, SnapshotPartition
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_partition
from spark_sink.sources.snapshot.options import SnapshotOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

FORMAT = "spanner-snapshot"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark's configuration without which a Python data source may not take filters."""

READ_TIMESTAMP, SPANNER_TYPE = "read_timestamp", "spanner_type"
"""In the metadata of every column: as of when it is read, in RFC 3339, and Spanner's type object."""

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The results of planning, from when the DataFrame was made."""

    timestamp: int
    dialect: Dialect
    columns: tuple[ColumnType, ...]


@dataclass(frozen=True)
class RowsToRead(InputPartition):
    """The rows that a task reads."""

    partition: SnapshotPartition


class SpannerSnapshot(DataSource):
    """The rows of a table as of a timestamp, with typed columns.

    Args:
        options: see :class:`spark_sink.sources.snapshot.options.SnapshotOptions`.

    Raises:
        SpannerCdcError: Spanner does not answer, or the database, the table or a column does not exist.
    """

    pushes = False
    """True if filters are pushed to Spanner; Spark refuses a reader that can, unless :data:`PUSHDOWN` is true."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = SnapshotOptions.parse(options)
        self._planned = self._plan()  # here, because Spark copies it for each plan, and may not request the schema

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The table's columns, all or those of the option ``columns``."""
        planned = self._planned
        at = format_rfc3339(planned.timestamp)
        fields = from_arrow_schema(arrow_schema(planned.columns)).fields
        return StructType(
            [
                StructField(field.name, field.dataType, field.nullable, {READ_TIMESTAMP: at, SPANNER_TYPE: column.type})
                for field, column in zip(fields, planned.columns, strict=True)
            ]
        )

    def reader(self, schema: StructType) -> "SnapshotReader":
        """Reads the table's partitions, which are made when the query is planned."""
        kind = PushingSnapshotReader if self.pushes else SnapshotReader
        return kind(self._options, self._planned, schema)

    def _plan(self) -> _Planned:
        options = self._options
        now = asyncio.run(DatabaseNow.of(options.address, at=options.read_timestamp))
        query = TableQuery(options.table, options.columns)
        with Snapshot.open(options.address, now.timestamp) as snapshot:
            planned = _Planned(now.timestamp, now.dialect, snapshot.columns(query, now.dialect))
        _log.info("reading a snapshot", table=options.table, read_timestamp=format_rfc3339(now.timestamp))
        return planned


class SnapshotReader(DataSourceReader):
    """Reads the rows of a table."""

    def __init__(self, options: SnapshotOptions, planned: _Planned, schema: StructType) -> None:
        self._options = options
        self._planned = planned
        self._names = tuple(field.name for field in schema.fields)
        self._condition = ""

    def partitions(self) -> list[InputPartition]:
        """A task for each of Spanner's partitions.

        Raises:
            SpannerCdcError: Spanner does not answer, or no longer keeps the rows of the timestamp.
        """
        options, planned = self._options, self._planned
        query = TableQuery(options.table, self._names, self._condition)
        with Snapshot.open(options.address, planned.timestamp) as snapshot:
            found = snapshot.partitions(query, planned.dialect, data_boost=options.data_boost)
        return [RowsToRead(partition) for partition in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, block by block."""
        if not isinstance(partition, RowsToRead):
            return  # Spark's placeholder for an empty plan
        options = self._options
        for block in read_partition(
            options.address,
            partition.partition,
            table=options.table,
            rpc_priority=options.rpc_priority,
            data_boost=options.data_boost,
        ):
            yield block.typed()


class PushingSnapshotReader(SnapshotReader):
    """Reads the rows of a table that filters select."""

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802
        """Takes the filters that Spanner evaluates as Spark does; returns the others. PySpark 4.0 does not call it."""
        from spark_sink.sources.snapshot.conditions import Conditions, comparable  # PySpark 4.0 has no filters

        conditions = Conditions(self._planned.dialect, comparable(self._planned.columns))
        written = [(one, conditions.sql(one)) for one in filters]
        self._condition = " AND ".join(sql for _, sql in written if sql is not None)
        return [one for one, sql in written if sql is None]
