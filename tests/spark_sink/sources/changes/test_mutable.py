"""A stream of partition mode MUTABLE_KEY_RANGE, through a spool, in Spark."""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import Scenario, ScriptedServer
from emulator.workload.tables import Dialect
from tests.emulator.subjects import sample_of
from tests.integration.commands import configuration, run
from tests.integration.delivered import in_spanners_encoding, of_rows

pytestmark = pytest.mark.spark


@pytest.mark.long
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_spark_reads_every_mod_of_a_stream_whose_keys_move(
    dialect: Dialect, spark: SparkSession, tmp_path: Path
) -> None:
    origin = time.time_ns() - 90 * SECOND
    scenario = Scenario.generate(8, origin=origin, seconds=60, dialect=dialect, mode="MUTABLE_KEY_RANGE", churn=30)
    bounds = {"start": format_rfc3339(origin), "end": format_rfc3339(scenario.history.horizon)}
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        assert run("read", configuration(tmp_path, sample_of(server), source=bounds)).code == 0
    df = spark.read.format("spanner-change-stream").option("spool", str(tmp_path / "spool")).load()
    rows = [row.asDict(recursive=True) for row in df.drop("read_timestamp", "source_timestamp", "sort_keys").collect()]
    assert of_rows(rows) == in_spanners_encoding(scenario.committed, "NEW_ROW")
    epochs = [row["epoch"] for row in sorted(rows, key=lambda row: str(row["change_sequence_number"]))]
    assert epochs == sorted(epochs)
