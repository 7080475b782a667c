"""A query that is killed (SIGKILL, with its JVM and all workers) continues where it was."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_sink.sources.changes.read_limits import ADMISSION_CONTROL
from tests.spark_sink.processes import program
from tests.spark_sink.queries import Query
from tests.spark_sink.spools import SpoolMaker

pytestmark = pytest.mark.spark


@pytest.mark.long
@pytest.mark.skipif(not ADMISSION_CONTROL, reason="PySpark before 4.2 takes all at once")
def test_each_epoch_is_delivered_once_in_batches_that_a_replay_does_not_change(
    spark: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    written = spool.fill(4)
    arguments = ("-m", "tests.spark_sink.sources.changes.programs.crashing_query", str(tmp_path), spool.path)
    for number, (point, batch) in enumerate((("planned", 0), ("written", 1))):
        with program(tmp_path / f"log{number}", *arguments, point, str(batch)) as crashing:
            assert crashing.code() == -9, crashing.said()
        written += spool.fill(1)  # later epochs are not part of the replayed batch
    query = Query(spark, tmp_path, spool=spool.path, maxRowsPerTrigger="10")
    query.run()
    assert query.ids() == written
    assert query.batches() == [[1, 2], [3, 4], [5, 6]]
