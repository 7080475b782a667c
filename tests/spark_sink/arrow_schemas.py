"""Spark's schemas in Arrow."""

import inspect

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """The Arrow schema of a source's batches; PySpark before 4.2 always uses UTC."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)
