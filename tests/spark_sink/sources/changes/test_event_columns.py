"""The micro-batch's columns."""

import pytest
from pyspark.sql import SparkSession

from connector.envelope.envelope import SCHEMA
from spark_sink.sources.changes.event_columns import of_spool
from tests.spark_sink.arrow_schemas import arrow_schema_of, documented_columns

pytestmark = pytest.mark.spark


def test_the_documented_columns_are_those_of_the_segments(spark: SparkSession) -> None:
    assert arrow_schema_of(documented_columns("spark.md", "stream_name")).equals(SCHEMA)


def test_the_schema_of_a_spool_is_the_documented_one_and_names_the_spool(spark: SparkSession) -> None:
    schema = of_spool("/a/spool")
    assert schema.simpleString() == documented_columns("spark.md", "stream_name").simpleString()
    assert schema["payload"].metadata == {"spool": "/a/spool"}
