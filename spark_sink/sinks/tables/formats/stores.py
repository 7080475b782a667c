"""The store of each format."""

from collections.abc import Mapping

from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.formats.delta import DeltaStore
from spark_sink.sinks.tables.formats.iceberg import IcebergStore
from spark_sink.sinks.tables.formats.parquet import ParquetStore
from spark_sink.sinks.tables.formats.store import TableStore

STORES: Mapping[Format, type[TableStore]] = {"delta": DeltaStore, "iceberg": IcebergStore, "parquet": ParquetStore}
