"""The campaign of repairs: its shorter forms."""

from pathlib import Path

import pytest

from tests.integration.servers import MakeDatabase
from tests.spark_sink.reading.repairs.campaign import Campaign
from tests.spark_sink.reading.repairs.damages import damaged


@pytest.mark.emulator
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sink", "dialect", "rows", "kills"),
    [
        ("files", "googlesql", 100, 1),
        ("files", "googlesql", 1000, 1),
        ("spanner", "googlesql", 1000, 1),
        ("merge-load", "postgresql", 1000, 0),
        ("append-only", "googlesql", 1000, 0),
    ],
)
def test_damages_and_deletes_lost_in_a_gap_are_repaired_under_load_though_a_repair_is_killed(
    sink: str,
    dialect: str,
    rows: int,
    kills: int,
    database: MakeDatabase,
    tmp_path: Path,
) -> None:
    sample = database(dialect=dialect, value_capture_type="NEW_ROW")
    with damaged(sink, tmp_path, sample) as target:
        campaign = Campaign(sample, target, tmp_path, rows=rows, seed=3)
        assert campaign.run(damages=rows // 20, kills=kills, writes=rows // 4) == ""
