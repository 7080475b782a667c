"""The columns of a micro-batch as Spark's schema."""

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from connector.envelope.envelope import SCHEMA

SPOOL = "spool"
"""In the metadata of the column ``payload``: the path of the spool that the rows come from."""


def of_spool(path: str) -> StructType:
    """The schema; its metadata names the spool of the rows, which :func:`spark_sink.typed` reads."""
    fields = from_arrow_schema(SCHEMA).fields  # parsing the DDL would need a Spark session
    return StructType(
        [
            StructField(field.name, field.dataType, field.nullable, {SPOOL: path}) if field.name == "payload" else field
            for field in fields
        ]
    )
