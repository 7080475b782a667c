"""Tables that were merged beside a backfill, killed now and then.

CI runs the campaign of rejected rows, which is this one with more.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_sink.sinks.tables.config import Format
from tests.spark_sink.sinks.tables.campaign.backfill_ends import ENDS, BackfillEnds


@pytest.mark.slow
def test_tables_equal_the_source_when_the_last_backfill_ends_though_no_change_follows(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    end = ENDS[merging_format == "delta"]  # the campaign has both for each format
    assert BackfillEnds(lake, merging_format, end, tmp_path, seed=1).run() == ""
