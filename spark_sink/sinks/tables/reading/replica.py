"""The tables of the sink, read by Spark for ``spanner-cdc verify``."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.config.replicas import Replica, Selection, ValuePrecision
from connector.config.sections import SparkConfig
from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema
from connector.core.timestamps import MICROSECOND
from connector.errors import ConfigurationError
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from spark_sink.errors import SinkError, clear_line
from spark_sink.failures import JOB_ERRORS
from spark_sink.session import need_java, session, stop_session
from spark_sink.sinks.shared.feed import delivered_up_to
from spark_sink.sinks.shared.replica_rows import events_of, sort_keys_of
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.formats.stores import STORES
from spark_sink.sinks.tables.lake_table import (
    CAPTURED,
    DELETED,
    IS_CURRENT,
    PRESENT,
    SEQUENCE,
    TYPE,
    is_noted,
    own_names,
    table_name,
)
from spark_sink.sinks.tables.libraries import missing_library, spark_options
from spark_sink.sinks.tables.table_faults import is_missing

_ROWS_AT_ONCE = 5000
_TIMESTAMPS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "timeZone": "UTC", "ignoreNullFields": "false"}
_TEXTS = frozenset({ColumnKind.NUMERIC})
"""The kinds whose values are texts of their digits in Datastream's unified types, and not in the table."""

_DOCUMENT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class TablesReplica(Replica):
    """Tables of Delta or Iceberg, in any mode. A row of the mode merge, or a current version, names its last change.

    Args:
        sink: the sink's options.
        spool: the spool's path.
        spark: the options of Spark.

    Raises:
        ConfigurationError: the tables are of Parquet.
        SinkError: nothing was delivered yet, or Spark cannot read the tables.
    """

    def __init__(self, sink: TablesConfig, spool: str, spark: SparkConfig) -> None:
        if sink.format == "parquet":
            raise ConfigurationError(["sink.format: tables of parquet cannot be verified: delta and iceberg can"])
        if missing := missing_library(sink, spark.config):
            raise SinkError(missing)
        self.delivered = delivered_up_to(Spool.at(absolute(spool)), sink.name)
        self._sink = sink
        self._appends = sink.mode == "append"
        self.name = f"{sink.format} tables in {sink.options.where}"
        self.keeps_history = self._appends
        self.precision = ValuePrecision(timestamp=MICROSECOND)
        need_java()
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        options = spark.model_copy(update={"config": spark_options(sink, spark)})
        self._spark: SparkSession = session(options, folder, verbose=False)
        self._stack.callback(stop_session, self._spark)
        self._store = STORES[sink.format](self._spark, sink.options, "")

    def close(self) -> None:
        """Stops Spark."""
        self._stack.close()

    def size(self, tables: Mapping[str, TableSchema]) -> int:
        """Unknown; buckets that are too large are divided."""
        del tables
        return 0

    def changes(self, tables: Mapping[str, TableSchema], wanted: Selection) -> Iterator[pa.RecordBatch]:
        """The rows of each table as of one version of it."""
        del wanted
        for schema in tables.values():
            try:
                yield from self._changes(schema)
            except JOB_ERRORS as error:
                raise SinkError(f"table {schema.table} of {self.name} cannot be read: {clear_line(error)}") from None

    def _changes(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        target = self._store.target(table_name(schema.table))
        try:
            self._store.refresh(target)
            rows = self._spark.table(target)
        except AnalysisException as error:
            if not is_missing(error):
                raise
            return  # no change of it was delivered
        if self._sink.mode == "history":
            rows = rows.where(IS_CURRENT)
        found = self._rows(rows, schema).toLocalIterator()
        documents = {column.name for column in schema.columns if SpannerType.parse(column.type).kind is ColumnKind.JSON}
        while held := list(islice(found, _ROWS_AT_ONCE)):
            yield events_of(
                schema.table,
                [sort_keys_of(row["sequence"]) for row in held],
                [row["change"] for row in held],
                [_payload(row, documents, schema.primary_keys) for row in held],
            )

    def _rows(self, rows: DataFrame, schema: TableSchema) -> DataFrame:
        """A row's payload, sequence number, mod type, and the columns that are known of it; NULL for all."""
        there = {name.lower(): name for name in rows.columns}
        columns = [
            _value(_named(there[column.name.lower()]), SpannerType.parse(column.type)).alias(column.name)
            for column in schema.columns
            if column.name.lower() in there
        ]
        if self._appends:
            change, known = F.col(own_names(there)[TYPE]), F.col(PRESENT)
        else:
            is_whole = F.col(CAPTURED).isNull() | F.expr(is_noted())
            change = F.when(F.col(DELETED), "DELETE").otherwise(F.when(is_whole, "INSERT").otherwise("UPDATE"))
            known = F.when(~is_whole, F.col(CAPTURED))
        return rows.select(
            F.to_json(F.struct(*columns), _TIMESTAMPS).alias("payload"),
            F.col(SEQUENCE).alias("sequence"),
            change.alias("change"),
            known.alias("known"),
        )


def _value(value: Column, of_type: SpannerType) -> Column:
    """A column whose JSON is that of Datastream's unified types."""
    if of_type.kind not in _TEXTS:
        return value
    return F.transform(value, lambda one: one.cast("string")) if of_type.is_array else value.cast("string")


def _payload(row: Row, documents: set[str], keys: Sequence[str]) -> str:
    """The payload of a row, with the columns that are known of it; a JSON column's text is a value of JSON."""
    text: str = row["payload"]
    known = row["known"]
    if known is None and not documents:
        return text
    values = _DOCUMENT.decode(text)
    if known is not None:
        values = {name: value for name, value in values.items() if name in known or name in keys}
    for name in documents & values.keys():
        values[name] = _document(values[name])
    return msgspec.json.encode(values).decode()


def _document(value: msgspec.Raw) -> msgspec.Raw:
    """The JSON value whose text a JSON string, or an array of them, has."""
    texts = msgspec.json.decode(value)
    if isinstance(texts, list):
        return msgspec.Raw(msgspec.json.encode([None if text is None else msgspec.Raw(text) for text in texts]))
    return value if texts is None else msgspec.Raw(texts)


def _named(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")
