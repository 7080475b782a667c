"""A backfill beside the stream: BigQuery's tables end as the source's, whichever rows arrive first, and after kills."""

from contextlib import suppress
from random import Random
from typing import cast

import pytest
from pyspark.sql import SparkSession

from connector.core.timestamps import SECOND
from connector.spool.backfill.records import backfills
from emulator.bigquery.double import BigQueryDouble
from spark_sink.errors import SinkError
from spark_sink.settling import settle_without_sink
from spark_sink.sinks.bigquery import jobs
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.delivery import BigQueryDelivery
from spark_sink.sinks.bigquery.merging.turns import Turns
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.feed import Feed
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.backfills.snapshots import Snapshot
from tests.spark_sink.sinks.bigquery.deliveries.histories import (
    CAPTURES,
    NEW_VALUES,
    OLD_AND_NEW,
    SINGERS,
    WHOLE,
    History,
)
from tests.spark_sink.sinks.bigquery.deliveries.runs import SinkRun
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    METADATA,
    NUMBER,
    KilledError,
    MakeScenario,
    Scenario,
    killed_at,
    sized,
)

POINTS: list[tuple[type, str]] = [
    (BigQueryClient, "create"),
    (BigQueryClient, "load"),
    (BigQueryClient, "query"),
    (BigQueryClient, "delete"),
    (BigQueryWriter, "append"),
    (Turns, "take"),
    (SinkRun, "deliver"),
]


@pytest.fixture(autouse=True)
def prevented_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill leaves jobs that are named and never started; nobody waits for them here."""
    monkeypatch.setattr(jobs, "PREVENTED_AFTER", 0.0)


def existing(scenario: Scenario, capture: str, random: Random) -> Scenario:
    """The scenario with rows that were committed before its stream's start."""
    scenario.history = History(random, capture)
    scenario.history.tables = {"Singers": SINGERS}
    while len(scenario.history.rows.get("Singers", ())) < 4:
        scenario.history.transaction()
    scenario.history.changes.clear()
    return scenario


class Seen:
    """The last change of each row that a reader has seen: its commit timestamp never decreases."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._numbers: dict[object, str] = {}

    def look(self) -> None:
        for row in self._scenario.rows("Singers"):
            number = row[METADATA].get(NUMBER, "")[:16]
            assert number >= self._numbers.get(row["Id"], ""), "a row went back in time"
            self._numbers[row["Id"]] = number


def interleaved(scenario: Scenario, snapshot: Snapshot, random: Random) -> None:
    """Both sinks run in turns, killed now and then, until everything is delivered."""
    seen, left = Seen(scenario), 3
    while left or not snapshot.is_sealed:
        is_stream = bool(left) and (snapshot.is_sealed or random.random() < 0.5)
        if is_stream:
            scenario.seal(random.randrange(1, 3))
            left -= 1
        else:
            snapshot.seal(random.randrange(1, 5))
        with sized(part=random.choice([1, 10**9])), scenario.sink() if is_stream else snapshot.sink() as sink:
            if random.random() < 0.6:
                point = random.choice(POINTS)
                with (
                    suppress(KilledError),
                    killed_at(*point, call=random.randrange(1, 3), after=random.random() < 0.5),
                ):
                    sink.run()
            elif random.random() < 0.7:
                sink.run()
        seen.look()
    for run in random.sample([scenario.run, snapshot.run], 2):
        run()
        seen.look()


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed == 1 else pytest.mark.slow) for seed in range(80)]
)
def test_loaded_tables_end_as_the_source_in_any_order_of_changes_and_backfill(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario, seed: int
) -> None:
    random = Random(seed)
    capture = [OLD_AND_NEW, NEW_VALUES, *CAPTURES][seed % 6]
    scenario = existing(make_scenario(local_bigquery, "merge-load"), capture, random)
    interleaved(scenario, Snapshot(scenario), random)
    scenario.check()


@pytest.mark.long(but=3)
@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 300))])
def test_tables_of_change_data_capture_end_as_the_source_in_any_order_of_changes_and_backfill(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, seed: int
) -> None:
    random = Random(seed)
    scenario = existing(make_scenario(bigquery_double, "merge"), random.choice(WHOLE), random)
    interleaved(scenario, Snapshot(scenario), random)
    rows = scenario.history.rows["Singers"]
    assert {key: row["Name"] for key, row in scenario.found("Singers").items()} == {
        key: row["Name"] for key, row in rows.items()
    }


@pytest.mark.long
@pytest.mark.parametrize("capture", [OLD_AND_NEW, pytest.param(NEW_VALUES, marks=pytest.mark.slow)])
def test_a_second_backfill_completes_rows_of_a_replica_that_was_started_without_one(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario, capture: str
) -> None:
    random = Random(5)
    scenario = existing(make_scenario(local_bigquery, "merge-load"), capture, random)
    scenario.seal(2)
    scenario.run()
    snapshot = Snapshot(scenario)
    scenario.seal(2)
    scenario.run()
    while not snapshot.is_sealed:
        snapshot.seal(3)
    snapshot.run()
    scenario.check()


@pytest.mark.long
def test_notes_of_changes_are_dropped_when_the_backfill_is_done_though_no_change_follows(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = existing(make_scenario(local_bigquery, "merge-load"), OLD_AND_NEW, Random(6))
    snapshot = Snapshot(scenario)
    scenario.seal(2)
    scenario.run()
    snapshot.seal(10)
    snapshot.run()
    assert tables(scenario) == {"Singers", "spanner_cdc_changed_Singers"}
    snapshot.done()
    delivery = BigQueryDelivery(scenario.config(), scenario.config().sink, Feed.of(scenario.config()))  # type: ignore[arg-type]
    settle_without_sink(delivery, scenario.config(), cast("SparkSession", None))
    assert tables(scenario) == {"Singers"}
    scenario.seal()
    scenario.run()
    assert tables(scenario) == {"Singers"}
    scenario.check()


@pytest.mark.long
def test_a_backfill_that_is_recorded_after_later_changes_were_merged_is_one_line(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = existing(make_scenario(local_bigquery, "merge-load"), OLD_AND_NEW, Random(8))
    scenario.seal(2)
    scenario.run()
    merged = scenario.rows("Singers")
    snapshot = Snapshot(scenario, before=1)
    snapshot.seal(10)
    with pytest.raises(SinkError, match=r"were merged before it was recorded.*Run it again: the tables") as it:
        snapshot.run()
    assert "\n" not in str(it.value)
    assert scenario.rows("Singers") == merged
    lost_and_continued(scenario, snapshot)


def tables(scenario: Scenario) -> set[str]:
    return {table.table_id for table in scenario.client.list_tables(scenario.dataset)}


def test_rows_of_a_backfill_are_appended_once_as_inserts_before_every_change(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = existing(make_scenario(bigquery_double, "append-only"), OLD_AND_NEW, Random(7))
    snapshot = Snapshot(scenario)
    before = set(scenario.history.rows["Singers"])
    scenario.seal(3)
    scenario.run()
    snapshot.seal(2)
    with snapshot.sink() as sink, killed_at(SinkRun, "deliver", after=True), suppress(KilledError):
        sink.run()
    while not snapshot.is_sealed:
        snapshot.seal(2)
    snapshot.run()
    rows = scenario.rows("Singers")
    number = f"{snapshot.timestamp:016X}/{0:016X}/{0:016X}"
    read = [row for row in rows if row[METADATA][NUMBER] == number]
    assert sorted((str(row["Id"]),) for row in read) == sorted(before)
    assert {row[METADATA]["change_type"] for row in read} == {"INSERT"}
    assert min(row[METADATA][NUMBER] for row in rows) == number


def lost_and_continued(scenario: Scenario, snapshot: Snapshot) -> None:
    """Delivers the rows of a backfill that was recorded as lost, at a new timestamp."""
    (one,) = backfills(scenario.maker.spool)
    assert (one.spool.path, one.is_open) == (snapshot.spool.path, False)
    scenario.seal()
    again = Snapshot(scenario, continues=1)
    while not again.is_sealed:
        again.seal(10)
    again.run()
    scenario.run()
    assert set(scenario.found("Singers")) == set(scenario.history.rows["Singers"])


def test_a_backfill_that_bigquery_might_let_restore_deleted_rows_is_read_at_a_new_timestamp(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = existing(make_scenario(bigquery_double, "merge"), WHOLE[0], Random(9))
    snapshot = Snapshot(scenario)
    snapshot.seal(2)
    with snapshot.sink(age=47 * 3600 * SECOND) as sink:
        sink.run()
    snapshot.seal(2)
    with (
        snapshot.sink(age=47 * 3600 * SECOND + 1) as sink,
        pytest.raises(SinkError, match=r"remembers a deleted row for two days.*Run it again: the tables") as it,
    ):
        sink.run()
    assert "\n" not in str(it.value)
    lost_and_continued(scenario, snapshot)
