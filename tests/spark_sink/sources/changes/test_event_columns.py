"""The micro-batch's columns."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from connector.envelope.envelope import SCHEMA
from spark_sink.sources.changes.event_columns import DDL, of_spool
from tests.spark_sink.arrow_schemas import arrow_schema_of

pytestmark = pytest.mark.spark


def test_the_literal_ddl_is_the_schema_of_the_segments(spark: SparkSession) -> None:
    schema = StructType.fromDDL(DDL)
    assert isinstance(schema, StructType)
    assert arrow_schema_of(schema).equals(SCHEMA)


def test_the_schema_of_a_spool_is_the_ddl_and_names_the_spool(spark: SparkSession) -> None:
    schema = of_spool("/a/spool")
    assert schema.simpleString() == StructType.fromDDL(DDL).simpleString()
    assert schema["payload"].metadata == {"spool": "/a/spool"}
