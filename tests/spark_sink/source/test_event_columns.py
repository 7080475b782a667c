"""The micro-batch's columns."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from connector.envelope.envelope import SCHEMA
from spark_sink.source.event_columns import DDL, of_spool

pytestmark = pytest.mark.spark


def test_the_literal_ddl_is_the_schema_of_the_segments(spark: SparkSession) -> None:
    schema = StructType.fromDDL(DDL)
    assert isinstance(schema, StructType)
    assert to_arrow_schema(schema, timezone="UTC").equals(SCHEMA)


def test_the_schema_of_a_spool_is_the_ddl_and_names_the_spool(spark: SparkSession) -> None:
    schema = of_spool("/a/spool")
    assert schema.simpleString() == StructType.fromDDL(DDL).simpleString()
    assert schema["payload"].metadata == {"spool": "/a/spool"}
