"""Readers that join tables as of published cuts, beside a sink that is killed."""

from pathlib import Path

from pyspark.sql import SparkSession

from spark_sink.sinks.tables.config import Format
from tests.spark_sink.cuts.campaign import Campaign


def test_the_sum_of_two_tables_is_right_as_of_every_cut_and_not_without_cuts(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    campaign = Campaign(lake, merging_format, tmp_path, seed=1)
    assert campaign.run(cuts=3, kills=2) == ""
