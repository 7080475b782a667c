"""The file sink's own stream, whose tasks take their process with them: Spark's Python workers import this module."""

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_sink.sinks.files.plan import FileOptions, FilesRoot, Holding
from spark_sink.sinks.files.source import FileSinkReader, FileSinkSource
from spark_sink.sinks.shared.feed import Feed


class FailingSource(FileSinkSource):
    """The same source."""

    def streamReader(self, schema: object) -> "FailingReader":  # noqa: N802
        file_options, holding = (
            FileOptions.from_text(self.options["file_options"]),
            Holding.from_text(self.options["holding"]),
        )
        root = FilesRoot(self.options["path"], self.options["endpoint"], self.options["dead_letters"])
        return FailingReader(Feed.of_options(self.options), root, file_options, holding, 1)


class FailingReader(FileSinkReader):
    """Writes the files, and fails before it reports them."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        list(super().read(partition))
        os._exit(1)
