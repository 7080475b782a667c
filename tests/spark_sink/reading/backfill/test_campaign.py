"""The campaign against backfills: its short form, and that it finds what it looks for."""

import json
import time
from pathlib import Path

import pytest

from connector.core.timestamps import format_rfc3339
from tests.integration.commands import configuration, run
from tests.integration.servers import MakeDatabase
from tests.spark_sink.reading.backfill.campaign.at_once import AtOnce
from tests.spark_sink.reading.backfill.campaign.campaign import Campaign
from tests.spark_sink.reading.backfill.campaign.destinations import destination
from tests.spark_sink.reading.backfill.campaign.differences import Traces, differing
from tests.spark_sink.reading.backfill.campaign.observer import Observations
from tests.spark_sink.reading.backfill.campaign.tables import Key, Rows, columns_of, committed_at, ddl, last_commit


@pytest.mark.emulator
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("sink", "dialect"),
    [("files", "postgresql"), ("append-only", "googlesql"), ("merge", "googlesql"), ("merge-load", "postgresql")],
)
def test_destinations_equal_spanner_though_the_backfill_is_killed_and_no_row_goes_back(
    sink: str, dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    with destination(sink, tmp_path) as target:
        sample = database(dialect=dialect, value_capture_type=target.captures)
        assert Campaign(sample, target, tmp_path, rows=2000, seed=4).run(kills=2) == ""


@pytest.mark.emulator
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.slow
def test_two_backfills_of_different_tables_are_read_at_the_same_time(database: MakeDatabase, tmp_path: Path) -> None:
    """One is stopped in part and resumed, the other filtered; columns are hashed and excluded."""
    assert AtOnce(database(dialect="postgresql"), tmp_path, rows=400, seed=7, parents=2).run(kills=0) == ""


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


@pytest.mark.long
@pytest.mark.emulator
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_a_row_that_differs_is_traced_to_the_change_that_the_spool_lacks(
    database: MakeDatabase, tmp_path: Path, dialect: str
) -> None:
    sample = database(dialect=dialect)
    sample.run_ddl(*ddl(dialect))
    start = format_rfc3339(time.time_ns())
    with sample.database.batch() as batch:
        batch.insert("Parent1", columns_of("Parent1"), [(1, "one", 1), (2, "two", 2)])
    sealed = str(last_commit(sample.database).rfc3339())
    done = run("read", configuration(tmp_path, sample, source={"start": start, "end": sealed}))
    assert done.code == 0, done.err
    with sample.database.batch() as batch:
        batch.update("Parent1", columns_of("Parent1"), [(2, "too", 3)])
    end = str(committed_at(batch).rfc3339())

    expected: Rows = {("Parent1", (1,)): ("one", 1), ("Parent1", (2,)): ("too", 3)}
    lacking, unexplained = ("Parent1", (2,)), ("Parent1", (1,))
    assert differing(expected, {**expected, lacking: ("two", 2)}) == [lacking]
    traces = Traces(sample, tmp_path, [lacking], end)
    assert len(traces.skipped) == 1
    assert traces.are_skipped()
    traces.write(tmp_path / "differences.json", expected, {lacking: ("two", 2)})
    (way,) = json.loads((tmp_path / "differences.json").read_text())
    assert [change[1:] for change in way["change stream"]] == [["INSERT", ""], ["UPDATE", "the spool lacks it"]]
    assert [payload["Name"] for _, _, payload in way["spool"]] == ["two"]
    assert not Traces(sample, tmp_path, [lacking, unexplained], end).are_skipped()
