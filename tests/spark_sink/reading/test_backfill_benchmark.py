"""A backfill and the library's way copy the same rows, so that `make bench ONLY=backfill` can compare their rates."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.destinations.backfill import turns
from benchmarks.destinations.library import Parts
from benchmarks.destinations.places import files
from benchmarks.measure.subject import Here
from benchmarks.replay.messages import Span
from benchmarks.replay.rows import TableReplay
from benchmarks.replay.server import replaying

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_backfill_and_the_librarys_way_write_the_same_number_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.version
    with replaying(TableReplay(), Span(0, 0)) as server:
        ours, library = turns(files("jsonl"), str(tmp_path / "json"), Here(), Parts(server.host, 2, 400))
    assert ours.events == library.events == 800
