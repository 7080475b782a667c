"""Spark's schemas in Arrow, and as the documentation has them."""

import inspect
import re
from pathlib import Path

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """The Arrow schema of a source's batches; PySpark before 4.2 always uses UTC."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def documented_columns(page: str, first: str) -> StructType:
    """The columns in the block of a page of docs/ that begins with a column; a Spark session must be there."""
    text = Path(__file__).parents[2].joinpath("docs", page).read_text()
    (ddl,) = re.findall(rf"^```\n({first} .*?)```", text, re.DOTALL | re.MULTILINE)
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema
