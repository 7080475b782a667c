"""The data source ``datastream-files``: reads a folder of the file sink's files as a batch.

For tests, and for replaying events into another destination. The columns are those of ``spanner-change-stream``.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from connector.envelope.envelope import SCHEMA
from connector.errors import ConfigurationError
from connector.spool.storage.locations import absolute, checked
from spark_sink.sources.changes.admission import runs
from spark_sink.sources.files.files import files_below, read_file
from spark_sink.sources.option_names import listed, lowered, refused, unknown

FORMAT = "datastream-files"
KNOWN = ("path", "tables")


@dataclass(frozen=True, slots=True)
class FilesOptions:
    """The options of the source; ``path`` is absolute, or ``gs://bucket/prefix``."""

    path: str
    tables: tuple[str, ...] = ()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "FilesOptions":
        """The options that Spark passes, with names in any case.

        Raises:
            ConfigurationError: options are not valid; it names every error.
        """
        given = lowered(options)
        faults = unknown(given, KNOWN)
        path = given.get("path", "")
        if not path:
            faults.append("option path is missing: the folder of the files, as in load(path)")
        else:
            faults += refused("path", path, checked)
        tables = listed("tables", given, faults, what="tables")
        if faults:
            raise ConfigurationError(faults)
        return cls(absolute(path), tables)

    def wanted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the selected tables."""
        if not self.tables:
            return rows
        names = rows.column("object")
        wanted = [
            name for name in pc.unique(names).to_pylist() if any(fnmatchcase(name, pattern) for pattern in self.tables)
        ]
        return rows.filter(pc.is_in(names, value_set=pa.array(wanted, pa.string())))


@dataclass(frozen=True)
class FilesToRead(InputPartition):
    """The files that a task reads, in order."""

    files: tuple[str, ...]


class DatastreamFiles(DataSource):
    """Events in the files below a folder, in Datastream's layout or another.

    Args:
        options: see :class:`FilesOptions`.
    """

    cores = 0
    """The most tasks of a read; 0 for one for each processor of this machine."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = FilesOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of an event."""
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> "DatastreamFilesReader":
        """Reads the files that exist when the query is planned."""
        return DatastreamFilesReader(self._options, self.cores or os.cpu_count() or 1)


class DatastreamFilesReader(DataSourceReader):
    """Reads the files below a folder, or one file."""

    def __init__(self, options: FilesOptions, cores: int) -> None:
        self._options = options
        self._cores = cores

    def partitions(self) -> list[InputPartition]:
        """Divides the files among tasks: contiguous in the order of their paths, about equal in bytes.

        Raises:
            EventFileError: there is no such folder, or it holds OpenCDC files.
        """
        files = files_below(self._options.path)
        return [
            FilesToRead(tuple(file.path for file in files[run.start : run.stop]))
            for run in runs([file.bytes for file in files], self._cores)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, file by file."""
        if not isinstance(partition, FilesToRead):
            return  # Spark's placeholder for an empty plan
        for file in partition.files:
            for batch in read_file(file):
                rows = self._options.wanted(batch)
                if rows.num_rows:
                    yield rows
