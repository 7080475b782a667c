"""A table's rows with typed columns, in Spark SQL alone: no Python runs per row.

The payload's values are in Spanner's own JSON encoding
(https://cloud.google.com/spanner/docs/reference/rpc/google.spanner.v1#typecode), where INT64 is a string and FLOAT64
may be one. So every value is taken out as text, and cast by its column's type in the schema that the spool knows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError
from connector.spool.reading import Spool
from spark_sink.source import schema

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
"""The columns that stand beside the table's own."""


@dataclass(frozen=True, slots=True)
class SparkType:
    """A Spark SQL type, and how a value's text becomes it."""

    name: str
    cast: Cast


def _plain(name: str) -> SparkType:
    return SparkType(name, lambda value: value.cast(name))


_STRING = SparkType("string", lambda value: value)
_BINARY = SparkType("binary", F.unbase64)
_TYPES = {
    "BOOL": _plain("boolean"),
    "INT64": _plain("bigint"),
    "ENUM": _plain("bigint"),
    "FLOAT32": _plain("float"),
    "FLOAT64": _plain("double"),
    "NUMERIC": _plain("decimal(38,9)"),
    "DATE": _plain("date"),
    "TIMESTAMP": _plain("timestamp"),
    "BYTES": _BINARY,
    "PROTO": _BINARY,
}
"""By type code; whatever is not here stays text: STRING, JSON, UUID, INTERVAL, and types not known yet."""


def typed(df: DataFrame, table: str, *, spool: str | None = None) -> DataFrame:
    """The rows of one table, with a column for each of the table's, and what happened to the row.

    Beside the table's columns stand ``_change_type``, ``_commit_timestamp`` (text, all digits),
    ``_change_sequence_number``, ``_uuid``, ``_is_deleted``, ``_present`` and ``_epoch``. A column that was not
    captured is NULL here as well; ``_present`` lists the columns that were. The columns are those known when this is
    called: of the newest epoch, wherein older rows lack what was added later. A column whose type has changed is text.

    Args:
        df: rows of the source, as a stream or as a batch; its columns are still there.
        table: the table's name, ``schema.table`` in a named schema.
        spool: the path of the spool, if ``df`` is not straight from the source.

    Raises:
        ConfigurationError: the spool or the table is not known, or a column is named like one of the above.
        SpoolError: the spool cannot be read.
    """
    columns = _columns(Spool.at(spool or _spool_of(df)), table)
    taken = sorted(name for name in columns if name.lower() in METADATA)
    if taken:
        raise ConfigurationError(
            [f"table {table} has a column {', '.join(taken)}, which typed() adds itself: read it from payload"]
        )
    read_as = StructType([StructField(name, _text_of(type_json)) for name, type_json in columns.items()])
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
        _cast(F.col("_row").getField(name), type_json).alias(name, metadata={"spanner_type": type_json})
        for name, type_json in columns.items()
    ]
    return rows.select(*values, *(F.col(name) for name in METADATA))


def _spool_of(df: DataFrame) -> str:
    found = [field.metadata.get(schema.SPOOL) for field in df.schema.fields if field.name == "payload"]
    if not found or not isinstance(found[0], str):
        raise ConfigurationError(
            ["typed() cannot tell the spool of this DataFrame: give it the source's own rows, or its path as spool="]
        )
    return found[0]


def _columns(spool: Spool, table: str) -> dict[str, str]:
    """The columns of a table by name, with Spanner's type; an empty type where it has changed."""
    newest, keys = _schema_keys(spool)
    current = newest.get(table)
    if current is None:
        known = ", ".join(sorted(newest)) or "none yet"
        raise ConfigurationError([f"the spool at {spool.path} knows no table {table} (known: {known})"])
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
    """The newest schema of each table, and every schema key that is in the spool."""
    try:
        header = spool.header()
    except FileNotFoundError:
        raise ConfigurationError(
            [f"there is no spool at {spool.path} yet: typed() knows a table's columns once the reader has started"]
        ) from None
    latest = spool.latest()
    newest = spool.manifest(latest).schema_keys if latest else header.schema_keys
    keys = [name[:-5] for name in spool.storage.list("schemas") if name.endswith(".json")]
    return {table: spool.schema(key) for table, key in newest.items()}, keys


def _text_of(type_json: str) -> StringType | ArrayType:
    return ArrayType(StringType()) if _element(type_json) is not None else StringType()


def _cast(value: Column, type_json: str) -> Column:
    element = _element(type_json)
    if element is None:
        return _type_of(type_json).cast(value)
    kind = _type_of(orjson.dumps(element).decode())
    if kind is _STRING:
        return value
    if kind is _BINARY:
        return F.transform(value, F.unbase64)
    return value.cast(f"array<{kind.name}>")


def _element(type_json: str) -> object:
    """The type of an ARRAY's elements, or None."""
    node = orjson.loads(type_json) if type_json else {}
    return node.get("array_element_type") if node.get("code") == "ARRAY" else None


def _type_of(type_json: str) -> SparkType:
    node = orjson.loads(type_json) if type_json else {}
    if node.get("type_annotation") == "PG_NUMERIC":  # it may be NaN, and has more digits than a decimal
        return _STRING
    return _TYPES.get(str(node.get("code")), _STRING)
