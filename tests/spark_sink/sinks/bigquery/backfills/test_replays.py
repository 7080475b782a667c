"""Dead letters of a backfill that is done, while a later one of the same table is not."""

from pathlib import Path
from random import Random

import pytest

from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.shared.dead_letters import DeadLetters
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.backfills.snapshots import Snapshot
from tests.spark_sink.sinks.bigquery.deliveries.histories import OLD_AND_NEW, SINGERS, History
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import MakeScenario, Scenario
from tests.spark_sink.sinks.bigquery.tables.edits import dead_letters_of, reasons_of, replay


@pytest.fixture
def scenario(local_bigquery: LocalBigQuery, make_scenario: MakeScenario) -> Scenario:
    """A table with rows that were committed before its stream's start."""
    scenario: Scenario = make_scenario(local_bigquery, "merge-load")
    scenario.history = History(Random(15), OLD_AND_NEW)
    scenario.history.tables = {"Singers": SINGERS}
    while len(scenario.history.rows.get("Singers", ())) < 4:
        scenario.history.transaction()
    scenario.history.changes.clear()
    return scenario


def put_dead_letters(scenario: Scenario, snapshot: Snapshot) -> int:
    """Makes dead letters of the rows of a backfill's first epoch, which is delivered; returns how many."""
    (manifest,) = snapshot.spool.manifests(1, 1)
    (batch,) = snapshot.spool.batches(manifest.files[0])
    name = f"{snapshot.spool.header().spool_id}_bigquery_1_0"
    DeadLetters(str(Path(scenario.dead_letters))).put("Singers", name, batch, ["too large"] * batch.num_rows)
    return int(batch.num_rows)


def delivered(scenario: Scenario) -> Snapshot:
    snapshot = Snapshot(scenario)
    while not snapshot.is_sealed:
        snapshot.seal(100)
    snapshot.run()
    return snapshot


def all_deleted(scenario: Scenario) -> None:
    history = scenario.history
    history.at += 1000
    scenario.maker.seal(history.record("Singers", "DELETE", sorted(history.rows["Singers"])))
    scenario.run()


@pytest.mark.long
def test_dead_letters_of_an_earlier_backfill_stay_while_a_later_one_of_the_table_is_not_done(
    scenario: Scenario,
) -> None:
    first = delivered(scenario)
    count = put_dead_letters(scenario, first)
    first.done()
    all_deleted(scenario)
    later = Snapshot(scenario)
    assert replay(scenario) == Replayed(rejected=count)
    assert scenario.rows("Singers") == [], "what was deleted between the two is not restored"
    (reason,) = reasons_of(scenario)
    assert reason == (
        "a later backfill of its table is not done, and reads its row again: remove this dead letter once that"
        " backfill is done"
    )
    later.done()


@pytest.mark.long
def test_dead_letters_of_a_backfill_that_is_not_done_are_merged_without_what_was_deleted_since(
    scenario: Scenario,
) -> None:
    snapshot = delivered(scenario)
    count = put_dead_letters(scenario, snapshot)
    all_deleted(scenario)
    assert replay(scenario) == Replayed(sent=count)
    assert (scenario.rows("Singers"), dead_letters_of(scenario)) == ([], {})
