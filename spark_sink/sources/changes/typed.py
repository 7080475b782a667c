"""``typed()``: the rows of one table with typed columns, in Spark SQL alone: no Python runs for a row.

The payload's values are in Spanner's own JSON encoding
(https://cloud.google.com/spanner/docs/reference/rpc/google.spanner.v1#typecode), where INT64 is a string and FLOAT64
may be one. So every value is extracted as text, and cast to the type of its column in the spool's schema.
"""

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, StringType, StructField, StructType, TimestampType

from connector.core.column_kinds import ColumnKind, SpannerType
from connector.errors import ConfigurationError
from connector.spool.reading import Spool
from spark_sink.sources.changes.event_columns import SPOOL
from spark_sink.sources.changes.known_tables import BINARY, SPARK_TYPES, STRING, KnownTables, parsed

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

_PARSING = {"mode": "FAILFAST", "columnNameOfCorruptRecord": "spanner-cdc.corrupt-record"}
"""Spark gives no value to the column of that name, in any mode; no column of Spanner can have this one."""


def typed(df: DataFrame, table: str, *, spool: str | None = None) -> DataFrame:
    """The rows of one table, with a typed column for each column of the table, and columns that describe the change.

    The added columns are ``_change_type``, ``_commit_timestamp`` (text with all digits), ``_change_sequence_number``,
    ``_uuid``, ``_is_deleted``, ``_present`` and ``_epoch``. A column that was not captured is NULL, too; ``_present``
    lists the captured columns. The table's columns are those of the newest epoch at the time of the call; they are NULL
    in rows that are older than the column. A row with a column that is newer than the call fails the query, which has
    that column once it is started again. A column whose type has changed is text; while a query runs its types stay
    those of the call, so that it is to be started again after such a change.

    Args:
        df: rows of the source, as a stream or as a batch, with the columns of the source.
        table: the table's name, ``schema.table`` in a named schema.
        spool: the path of the spool; needed if ``df`` was transformed so that it no longer names its spool.

    Raises:
        ConfigurationError: the spool or the table is unknown, or a column has the name of an added column.
        SpoolError: the spool cannot be read.
    """
    found = Spool.at(spool or spool_of(df))
    newest, columns = found.latest(), KnownTables(found).columns(table)
    return typed_as(_without_unknown_columns(df, table, columns, after=newest), table, columns)


def _without_unknown_columns(df: DataFrame, table: str, columns: Collection[str], *, after: int) -> DataFrame:
    """The same rows; one of the table that has another column fails the query, because its value would be lost.

    Args:
        df: rows of the source.
        table: the table's name.
        columns: the names of its columns.
        after: an epoch up to which rows have no other column, so that their payloads need not be parsed for this.
    """
    is_later = (F.col("object") == F.lit(table)) & (F.col("epoch") > F.lit(after))
    known = F.array(*map(F.lit, columns))
    unknown = F.array_except(F.json_object_keys(F.col("payload")), known)
    names = F.array_join(unknown, ", ")
    why = F.concat(
        F.lit(f"table {table} has columns that are newer than this query's call of typed(): "),
        names,
        F.lit(". Start the query again, and it has them."),
    )
    fails = is_later & (F.size(unknown) > F.lit(0))
    return df.where(F.coalesce(F.when(fails, F.raise_error(why).cast("boolean")), F.lit(True)))


def typed_as(df: DataFrame, table: str, columns: Mapping[str, str], *, instants: bool = False) -> DataFrame:
    """The rows of one table as :func:`typed` returns them, with these columns by name and Spanner's type.

    Args:
        df: rows of the source.
        table: the table's name.
        columns: its columns.
        instants: whether a TIMESTAMP has a time zone whatever the session's option ``spark.sql.timestampType`` says.

    Raises:
        ConfigurationError: a column has the name of an added column.
    """
    if taken := sorted(name for name in columns if name.lower() in METADATA):
        raise ConfigurationError(
            [f"table {table} has a column {', '.join(taken)}, which typed() adds itself: read it from payload"]
        )
    payload = payload_texts(columns)
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
        _cast(F.col("_row").getField(name), parsed(type_json), instants=instants).alias(
            name, metadata={"spanner_type": type_json}
        )
        for name, type_json in columns.items()
    ]
    return rows.select(*values, *(F.col(name) for name in METADATA))


def columns_not_castable(df: DataFrame, table: str, columns: Mapping[str, str]) -> list[str]:
    """The columns of a table with values that :func:`typed_as` cannot cast; reads the rows once.

    Args:
        df: rows of the source.
        table: the table's name.
        columns: its columns by name, with Spanner's type.
    """
    rows = df.where(F.col("object") == F.lit(table)).select(payload_texts(columns).alias("row"))
    (found,) = rows.agg(
        *(F.bool_or(is_not_castable(F.col("row").getField(name), of_type)) for name, of_type in columns.items())
    ).collect()
    return [name for name, fails in zip(columns, found, strict=True) if fails]


def payload_texts(columns: Mapping[str, str]) -> Column:
    """The values of these columns, by name with Spanner's type, as texts in a struct."""
    texts = [StructField(name, _text_of(parsed(type_json))) for name, type_json in columns.items()]
    return F.from_json(F.col("payload"), StructType(texts), _PARSING)


def is_not_castable(value: Column, type_json: str) -> Column:
    """True if :func:`typed_as` cannot cast a value that is a text, or an array of texts, to a type of Spanner's."""
    column_type = parsed(type_json)
    name = SPARK_TYPES[column_type.kind]
    of_type = TimestampType() if name == SPARK_TYPES[ColumnKind.TIMESTAMP] else name

    def fails(one: Column) -> Column:
        if name == STRING:
            return F.lit(False)
        cast = F.try_to_binary(one, F.lit("base64")) if name == BINARY else one.try_cast(of_type)
        return one.isNotNull() & cast.isNull()

    return F.exists(value, fails) if column_type.is_array else fails(value)


def spool_of(df: DataFrame) -> str:
    """The path of the spool that rows come from.

    Raises:
        ConfigurationError: the rows no longer name it.
    """
    found = [field.metadata.get(SPOOL) for field in df.schema.fields if field.name == "payload"]
    if not found or not isinstance(found[0], str):
        raise ConfigurationError(
            ["the spool of this DataFrame is not known: pass the source's own rows, or its path as spool="]
        )
    return found[0]


def _text_of(column_type: SpannerType) -> StringType | ArrayType:
    return ArrayType(StringType()) if column_type.is_array else StringType()


def _bytes_of(text: Column) -> Column:
    """The bytes of a text in base64; another text, as of a column that was a STRING, is an error and not garbage."""
    return F.to_binary(text, F.lit("base64"))


def _cast(value: Column, column_type: SpannerType, *, instants: bool) -> Column:
    name = SPARK_TYPES[column_type.kind]
    if name == STRING:
        return value
    if name == BINARY:
        return F.transform(value, _bytes_of) if column_type.is_array else _bytes_of(value)
    if instants and name == SPARK_TYPES[ColumnKind.TIMESTAMP]:
        return value.cast(ArrayType(TimestampType()) if column_type.is_array else TimestampType())
    return value.cast(f"array<{name}>" if column_type.is_array else name)
