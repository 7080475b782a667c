"""A session with the libraries that there are for the installed Spark (`make test-lakehouse`)."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import spark_sink
from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from tests.lake_libraries import FEW_ROWS, INTERPRETED, lake_options


@pytest.fixture(scope="session")
def lake() -> Iterator[SparkSession]:
    options = lake_options()
    builder = SparkSession.builder.master("local[2]").appName("tables")
    for name, value in {
        **options,
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        **FEW_ROWS,
        **(INTERPRETED if options else {}),
        "spark.driver.memory": "1536m",
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    spark_sink.register(session)
    yield session
    if options:  # else it is the session of the other tests
        session.stop()


@pytest.fixture(params=["delta", "iceberg"])
def merging_format(request: pytest.FixtureRequest) -> Format:
    if spark_version() not in LIBRARIES[request.param].versions:
        pytest.skip(f"there is no library of {request.param} for Spark {spark_version()}: make test-lakehouse")
    found: Format = request.param
    return found
