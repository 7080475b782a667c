"""Rejected rows of changes and of a backfill, killed now and then: the short form of the campaign."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.formats.session import session_options
from spark_sink.sinks.tables.kept_rows import KeptRows
from tests.spark_sink.sinks.tables.campaign.backfill_ends import ENDS, HUNDREDS_OF_ROWS
from tests.spark_sink.sinks.tables.rejected.campaign import RejectedCampaign

SEEDS = {"delta": 1, "iceberg": 0}
"""Mode history, and mode merge."""


@pytest.mark.long
def test_tables_are_as_if_no_row_had_been_rejected_once_all_are_mended_and_replayed(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    with session_options(lake, HUNDREDS_OF_ROWS):
        run = RejectedCampaign(lake, merging_format, ENDS[0], tmp_path, SEEDS[merging_format])
        run.epochs = 2
        assert run.run() == ""
        assert run.kills > 0
        assert run.letters > 0


@pytest.mark.slow
def test_a_rejected_row_of_a_backfill_that_is_deleted_later_does_not_come_back(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """No change was delivered during the backfill, so that nothing was to be kept then."""
    with session_options(lake, HUNDREDS_OF_ROWS):
        run = RejectedCampaign(lake, merging_format, ENDS[0], tmp_path, seed=0)
        run.chance = 0
        run.begin()
        KeptRows(run.source.maker.spool, "tables", lambda: ()).remove(frozenset())
        run.deliver_backfill()
        run.source.commit()
        run.deliver()
        run.replay_all()
        assert run.letters > 0
        assert run.wrong() == ""
