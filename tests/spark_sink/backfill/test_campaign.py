"""The campaign against backfills: its short form, and that it finds what it looks for."""

from pathlib import Path

import pytest

from tests.integration.servers import MakeDatabase
from tests.spark_sink.backfill.campaign.campaign import Campaign
from tests.spark_sink.backfill.campaign.destinations import destination
from tests.spark_sink.backfill.campaign.observer import Observations
from tests.spark_sink.backfill.campaign.tables import Key


@pytest.mark.emulator
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("sink", "dialect"),
    [("files", "postgresql"), ("append-only", "googlesql"), ("merge", "googlesql"), ("merge-load", "postgresql")],
)
def test_destinations_equal_spanner_though_the_backfill_is_killed_and_no_row_goes_back(
    sink: str, dialect: str, database: MakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # starts twice as fast
    with destination(sink, tmp_path) as target:
        sample = database(dialect=dialect, value_capture_type=target.captures)
        assert Campaign(sample, target, tmp_path, rows=2000, seed=4).run(kills=2) == ""


@pytest.mark.parametrize(
    ("looks", "back"),
    [
        ([{(1,): 5}, {(1,): 5}, {(1,): 7}], 0),
        ([{(1,): 5}, {(1,): 4}], 1),
        ([{(1,): 5}, {}, {}, {(1,): 6}, {(1,): 8}], 0),
        ([{(1,): 5}, {}, {}, {(1,): 5}], 1),
        ([{}, {(1,): 5, (2,): 3}, {(2,): 3}, {(1,): 9, (2,): 2}], 1),
    ],
)
def test_rows_that_go_back_or_return_after_a_delete_are_observed(looks: list[dict[Key, int]], back: int) -> None:
    seen = Observations()
    assert sum(len(seen.see(dict(look))) for look in looks) == back
