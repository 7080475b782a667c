"""Plans and reads the rows of ``spanner-snapshot``; all that calls Spanner is here, and needs the extra ``reader``."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
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

READ_TIMESTAMP, SPANNER_TYPE = "read_timestamp", "spanner_type"
"""In the metadata of every column: as of when it is read, in RFC 3339, and Spanner's type object."""

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Planned:
    """A snapshot's timestamp, and a table's columns as of it.

    Attributes:
        options: of the DataFrame.
        timestamp: in Unix nanoseconds.
    """

    options: SnapshotOptions
    timestamp: int
    dialect: Dialect
    columns: tuple[ColumnType, ...]

    def schema(self) -> StructType:
        """The table's columns, all or those of the option ``columns``."""
        at = format_rfc3339(self.timestamp)
        fields = from_arrow_schema(arrow_schema(self.columns)).fields
        return StructType(
            [
                StructField(field.name, field.dataType, field.nullable, {READ_TIMESTAMP: at, SPANNER_TYPE: column.type})
                for field, column in zip(fields, self.columns, strict=True)
            ]
        )

    def reader(self, schema: StructType, *, pushes: bool) -> "SnapshotReader":
        """Reads the table's partitions, which are made when the query is planned; ``pushes`` lets it take filters."""
        return (PushingSnapshotReader if pushes else SnapshotReader)(self, schema)


def planned(options: SnapshotOptions) -> Planned:
    """Chooses the timestamp, and asks Spanner for the table's columns.

    Raises:
        SpannerCdcError: Spanner does not answer, or the database, the table or a column does not exist.
    """
    now = asyncio.run(DatabaseNow.of(options.address, at=options.read_timestamp))
    query = TableQuery(options.table, options.columns)
    with Snapshot.open(options.address, now.timestamp) as snapshot:
        found = Planned(options, now.timestamp, now.dialect, snapshot.columns(query, now.dialect))
    _log.info("reading a snapshot", table=options.table, read_timestamp=format_rfc3339(now.timestamp))
    return found


@dataclass(frozen=True)
class RowsToRead(InputPartition):
    """The rows that a task reads."""

    partition: SnapshotPartition


class SnapshotReader(DataSourceReader):
    """Reads the rows of a table."""

    def __init__(self, planned: Planned, schema: StructType) -> None:
        self._planned = planned
        self._names = tuple(field.name for field in schema.fields)
        self._condition = ""

    def partitions(self) -> list[InputPartition]:
        """A task for each of Spanner's partitions.

        Raises:
            SpannerCdcError: Spanner does not answer, or no longer keeps the rows of the timestamp.
        """
        planned = self._planned
        options = planned.options
        query = TableQuery(options.table, self._names, self._condition)
        with Snapshot.open(options.address, planned.timestamp) as snapshot:
            found = snapshot.partitions(query, planned.dialect, data_boost=options.data_boost)
        return [RowsToRead(partition) for partition in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, block by block."""
        if not isinstance(partition, RowsToRead):
            return  # Spark's placeholder for an empty plan
        options = self._planned.options
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
        self._condition, left = conditions.pushed(filters)
        return left
