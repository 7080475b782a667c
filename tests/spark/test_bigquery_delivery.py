"""Rows arrive in BigQuery exactly once, however often the sink is killed: against local-bigquery, without Spark."""

from pathlib import Path
from random import Random

import pytest

from tests.local_bigquery import LocalBigQuery
from tests.spark.bigquery_histories import CAPTURES, NEW_ROW, History
from tests.spark.bigquery_trials import Trial, campaign

MODES = ("append-only", "changelog", "merge-load")


def trial_of(server: LocalBigQuery, folder: Path, mode: str, seed: int = 0, capture: str = NEW_ROW, **options: object) -> Trial:
    return Trial(server, folder, mode, History(Random(seed), capture), options)


@pytest.mark.parametrize("seed", range(20))
def test_campaign(local_bigquery: LocalBigQuery, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    mode = MODES[seed % 3]
    trial = trial_of(local_bigquery, tmp_path, mode, seed, random.choice(CAPTURES))
    campaign(trial, random)
