"""``typed()``: the rows of one table with typed columns, in Spark SQL alone: no Python runs for a row.

The payload's values are in Spanner's own JSON encoding
(https://cloud.google.com/spanner/docs/reference/rpc/google.spanner.v1#typecode), where INT64 is a string and FLOAT64
may be one. So every value is extracted as text, and cast to the type of its column in the spool's schema.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError
from connector.spool.reading import Spool
from spark_sink.source.event_columns import SPOOL

Cast = Callable[[Column], Column]

METADATA = (
    "_change_type",
    "_commit_timestamp",
    "_change_sequence_number",
    "_uuid",
    "_is_deleted",
    "_present",
    "_epoch",
)
"""The columns that are added to those of the table."""


@dataclass(frozen=True, slots=True)
class SparkType:
    """A Spark SQL type, and the conversion of a value's text to it."""

    name: str
    cast: Cast


def _plain(name: str) -> SparkType:
    return SparkType(name, lambda value: value.cast(name))


_STRING = SparkType("string", lambda value: value)
_BINARY = SparkType("binary", F.unbase64)
_LONG = _plain("bigint")

SPARK_TYPES: Mapping[ColumnKind, SparkType] = {
    ColumnKind.BOOL: _plain("boolean"),
    ColumnKind.INT64: _LONG,
    ColumnKind.FLOAT32: _plain("float"),
    ColumnKind.FLOAT64: _plain("double"),
    ColumnKind.NUMERIC: _plain("decimal(38,9)"),
    ColumnKind.PG_NUMERIC: _STRING,
    ColumnKind.STRING: _STRING,
    ColumnKind.BYTES: _BINARY,
    ColumnKind.DATE: _plain("date"),
    ColumnKind.TIMESTAMP: _plain("timestamp"),
    ColumnKind.JSON: _STRING,
    ColumnKind.UUID: _STRING,
    ColumnKind.INTERVAL: _STRING,
    ColumnKind.ENUM: _LONG,
    ColumnKind.PROTO: _BINARY,
    ColumnKind.UNKNOWN: _STRING,
}


def typed(df: DataFrame, table: str, *, spool: str | None = None) -> DataFrame:
    """The rows of one table, with a typed column for each column of the table, and columns that describe the change.

    The added columns are ``_change_type``, ``_commit_timestamp`` (text with all digits), ``_change_sequence_number``,
    ``_uuid``, ``_is_deleted``, ``_present`` and ``_epoch``. A column that was not captured is NULL, too; ``_present``
    lists the captured columns. The table's columns are those of the newest epoch at the time of the call; they are NULL
    in rows that are older than the column. A column whose type has changed is text.

    Args:
        df: rows of the source, as a stream or as a batch, with the columns of the source.
        table: the table's name, ``schema.table`` in a named schema.
        spool: the path of the spool; needed if ``df`` was transformed so that it no longer names its spool.

    Raises:
        ConfigurationError: the spool or the table is unknown, or a column has the name of an added column.
        SpoolError: the spool cannot be read.
    """
    columns = _columns(Spool.at(spool or _spool_of(df)), table)
    taken = sorted(name for name in columns if name.lower() in METADATA)
    if taken:
        raise ConfigurationError(
            [f"table {table} has a column {', '.join(taken)}, which typed() adds itself: read it from payload"]
        )
    read_as = StructType([StructField(name, _text_of(_parsed(type_json))) for name, type_json in columns.items()])
    payload = F.from_json(F.col("payload"), read_as, {"mode": "FAILFAST"})
    metadata = F.col("source_metadata")
    rows = df.where(F.col("object") == F.lit(table)).select(
        payload.alias("_row"),
        metadata.getField("mod_type").alias("_change_type"),
        metadata.getField("commit_timestamp").alias("_commit_timestamp"),
        F.col("change_sequence_number").alias("_change_sequence_number"),
        F.col("uuid").alias("_uuid"),
        metadata.getField("is_deleted").alias("_is_deleted"),
        F.json_object_keys(F.col("payload")).alias("_present"),
        F.col("epoch").alias("_epoch"),
    )
    values = [
        _cast(F.col("_row").getField(name), _parsed(type_json)).alias(name, metadata={"spanner_type": type_json})
        for name, type_json in columns.items()
    ]
    return rows.select(*values, *(F.col(name) for name in METADATA))


def _spool_of(df: DataFrame) -> str:
    found = [field.metadata.get(SPOOL) for field in df.schema.fields if field.name == "payload"]
    if not found or not isinstance(found[0], str):
        raise ConfigurationError(
            ["typed() cannot find the spool of this DataFrame: pass the source's own rows, or its path as spool="]
        )
    return found[0]


def _columns(spool: Spool, table: str) -> dict[str, str]:
    """The columns of a table by name, with Spanner's type; the type is empty if it has changed."""
    newest, keys = _schema_keys(spool)
    current = newest.get(table)
    if current is None:
        known = ", ".join(sorted(newest)) or "none yet"
        raise ConfigurationError([f"the spool at {spool.path} has no table {table} (tables: {known})"])
    columns = {column.name: column.type for column in current.columns}
    for key in keys:
        other = spool.schema(key)
        if other.table != table:
            continue
        for column in other.columns:
            if columns.setdefault(column.name, column.type) != column.type:
                columns[column.name] = ""
    return columns


def _schema_keys(spool: Spool) -> tuple[dict[str, TableSchema], list[str]]:
    """The newest schema of each table, and every schema key in the spool."""
    try:
        header = spool.header()
    except FileNotFoundError:
        raise ConfigurationError(
            [f"there is no spool at {spool.path} yet: start the reader first, which writes the columns of the tables"]
        ) from None
    latest = spool.latest()
    newest = spool.manifest(latest).schema_keys if latest else header.schema_keys
    keys = [name[:-5] for name in spool.storage.list("schemas") if name.endswith(".json")]
    return {table: spool.schema(key) for table, key in newest.items()}, keys


def _text_of(column_type: SpannerType) -> StringType | ArrayType:
    return ArrayType(StringType()) if column_type.is_array else StringType()


def _cast(value: Column, column_type: SpannerType) -> Column:
    spark_type = SPARK_TYPES[column_type.kind]
    if not column_type.is_array:
        return spark_type.cast(value)
    if spark_type is _STRING:
        return value
    if spark_type is _BINARY:
        return F.transform(value, F.unbase64)
    return value.cast(f"array<{spark_type.name}>")


def _parsed(type_json: str) -> SpannerType:
    """The type of a column; that of a column whose type has changed is not known."""
    return SpannerType.parse(type_json) if type_json else SpannerType(ColumnKind.UNKNOWN)
