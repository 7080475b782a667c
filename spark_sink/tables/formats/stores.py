"""The store of each format."""

from collections.abc import Mapping

from spark_sink.tables.config import Format
from spark_sink.tables.formats.delta import DeltaStore
from spark_sink.tables.formats.iceberg import IcebergStore
from spark_sink.tables.formats.parquet import ParquetStore
from spark_sink.tables.formats.store import TableStore

STORES: Mapping[Format, type[TableStore]] = {"delta": DeltaStore, "iceberg": IcebergStore, "parquet": ParquetStore}
