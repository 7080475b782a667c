"""One Spark session for all tests, and spools made without Spanner."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[2]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ["PYSPARK_PYTHON"] = sys.executable

import pytest  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

import spark_sink  # noqa: E402
from tests.local_bigquery import local_bigquery as local_bigquery  # noqa: E402
from tests.local_bigquery import local_bigquery_server as local_bigquery_server  # noqa: E402
from tests.spark_sink.spools import SpoolMaker  # noqa: E402

if TYPE_CHECKING:
    from emulator.bigquery.double import BigQueryDouble


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "768m")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.artifact.isolation.enabled", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    spark_sink.register(session)
    yield session
    session.stop()


@pytest.fixture
def bigquery_double() -> "Iterator[BigQueryDouble]":
    """BigQuery's double, with nothing in it."""
    from emulator.bigquery.double import BigQueryDouble

    with BigQueryDouble.started() as double:
        yield double


@pytest.fixture
def make_spool(tmp_path: Path) -> Callable[..., SpoolMaker]:
    def make(name: str = "spool") -> SpoolMaker:
        return SpoolMaker(tmp_path / name)

    return make


@pytest.fixture
def spool(make_spool: Callable[..., SpoolMaker]) -> SpoolMaker:
    return make_spool()
