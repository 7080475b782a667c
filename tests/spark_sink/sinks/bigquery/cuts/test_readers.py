"""Readers who join two tables as of a published cut see whole transactions; without a cut they do not."""

from pathlib import Path

import pytest

from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.cuts.cut_runs import CutScenario, campaign

CUTS, KILLS, SEED = 3, 2, 7


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("mode", "views"), [pytest.param("append-only", True, marks=pytest.mark.slow), ("merge-load", False)]
)
def test_a_sum_over_two_tables_is_right_in_every_cut_though_the_sink_is_killed(
    local_bigquery: LocalBigQuery, tmp_path: Path, mode: str, *, views: bool
) -> None:
    run = CutScenario(local_bigquery, tmp_path, mode, SEED, views=views)
    campaign(run, CUTS, KILLS)
    assert run.did["sums in cuts"] >= CUTS
    assert run.did["wrong sums without a cut"] > 0, "a load that needs no cut shows nothing"
