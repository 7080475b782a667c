"""The library's way to copy a table: tasks of Spark that read partitions by google-cloud-spanner, and a plain writer.

The writers are Spark's own, or the plain client of a destination that Spark has no writer for.
"""

from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from benchmarks.measure.snapshots import in_batches, library_partition
from benchmarks.replay.rows import COLUMNS, TableReplay

Row = list[object]

_ARROW = {
    "INT64": pa.int64(),
    "STRING": pa.string(),
    "NUMERIC": pa.decimal128(38, 9),
    "FLOAT64": pa.float64(),
    "BOOL": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "BYTES": pa.binary(),
}
_SCHEMA = pa.schema([(name, _ARROW[code]) for name, code in COLUMNS.items()])
_COUNT = pa.schema([("rows", pa.int64())])
_BYTES = [place for place, code in enumerate(COLUMNS.values()) if code == "BYTES"]
"""The columns that the library returns as base64."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A table's partitions, each of as many rows.

    Attributes:
        host: the server's address.
        count: how many there are.
        rows: of a partition.
    """

    host: str
    count: int
    rows: int

    @property
    def total(self) -> int:
        """The rows of all."""
        return self.count * self.rows

    def sql(self, part: int) -> str:
        """Returns the statement that reads a partition."""
        return TableReplay.sql(self.rows, part * self.rows)


def typed_rows(parts: Parts) -> DataFrame:
    """Returns the rows with the types of their columns; each task reads a partition."""
    return _tasks(parts, partial(_typed, parts), _SCHEMA)


def written(parts: Parts, write: Callable[[Iterator[Row]], int]) -> int:
    """Writes each partition's rows by a client, in a task; returns how many were written."""
    reports = _tasks(parts, partial(_counted, parts, write), _COUNT).collect()
    return sum(report.rows for report in reports)


def _tasks(parts: Parts, work: Callable[[int], Iterator[pa.RecordBatch]], schema: pa.Schema) -> DataFrame:
    """The batches of a task for each partition. PySpark's own way for functions of batches needs pandas."""

    class Tasks(DataSource):  # a class of a function is pickled by value, with the work
        @classmethod
        def name(cls) -> str:
            return "library"

        def schema(self) -> StructType:
            return from_arrow_schema(schema)

        def reader(self, schema: StructType) -> DataSourceReader:
            del schema
            return _Reader(parts.count, work)

    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(Tasks)
    return spark.read.format(Tasks.name()).load()


class _Reader(DataSourceReader):
    def __init__(self, count: int, work: Callable[[int], Iterator[pa.RecordBatch]]) -> None:
        self._count = count
        self._work = work

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(part) for part in range(self._count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._work(partition.value)


def _typed(parts: Parts, part: int) -> Iterator[pa.RecordBatch]:
    for rows in in_batches(library_partition(parts.host, parts.sql(part))):
        columns = list(zip(*rows, strict=True))
        for place in _BYTES:
            columns[place] = tuple(None if text is None else b64decode(text) for text in columns[place])
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _counted(parts: Parts, write: Callable[[Iterator[Row]], int], part: int) -> Iterator[pa.RecordBatch]:
    rows = write(library_partition(parts.host, parts.sql(part)))
    yield pa.RecordBatch.from_pylist([{"rows": rows}], schema=_COUNT)
