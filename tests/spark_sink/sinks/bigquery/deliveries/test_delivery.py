"""Rows arrive in BigQuery exactly once, however often the sink is killed: without Spark, in this process.

What takes SQL is tried on local-bigquery; the rest for the most part on the double, which is a hundred times as fast.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.commit_log import CommitLog
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.merging import loads
from spark_sink.sinks.bigquery.merging.row_merger import RowMerger
from spark_sink.sinks.bigquery.merging.statements import merge_statement
from spark_sink.sinks.bigquery.tables.table import BigQueryTableOptions, bigquery_table
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from tests.property import bigquery_merging
from tests.spark_sink.sinks.bigquery.deliveries.histories import (
    CAPTURES,
    NEW_ROW,
    OLD_AND_NEW,
    SINGERS,
    WHOLE,
    History,
    column,
    merged,
)
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint, SinkRun
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    METADATA,
    NUMBER,
    Interruption,
    Scenario,
    Server,
    all_tasks,
    at,
    campaign,
    expected_rows,
    singers,
    sized,
    some_parts,
    some_tasks,
)
from tests.spark_sink.spools import SpoolMaker

MODES = ("append-only", "changelog", "merge-load")
APPENDING = MODES[:2]
LOCAL, DOUBLE = "local_bigquery", "bigquery_double"
SERVER_OF = {"append-only": DOUBLE, "changelog": DOUBLE, "merge-load": LOCAL}


@pytest.fixture
def scenario_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Scenario]:
    def make(mode: str, seed: int = 0, capture: str = NEW_ROW, server: str = "", **options: object) -> Scenario:
        found: Server = request.getfixturevalue(server or SERVER_OF[mode])
        return Scenario(found, tmp_path, mode, History(Random(seed), capture), options)

    return make


MakeScenario = Callable[..., Scenario]


# Interrupted runs

APPEND_INTERRUPTIONS = {
    "some tasks ran": some_tasks,
    "a task wrote a part of what it is to write": some_parts,
    "all tasks ran": all_tasks,
    "the streams of one table were written down": at(CommitLog, "enter", call=1, after=True),
    "one table was committed": at(BigQueryWriter, "commit", call=2),
    "a commit has not answered": at(BigQueryWriter, "commit", call=1, after=True),
    "all was committed but the last note": at(CommitLog, "committed", call=2),
    "all is delivered, which Spark has not heard": at(SinkRun, "deliver", after=True),
}
MERGE_INTERRUPTIONS = {
    "a task wrote a part of what it is to write": some_parts,
    "a load has not answered": at(BigQueryClient, "load", call=2, after=True),
    "a merge has not answered": at(BigQueryClient, "query", call=2, after=True),
    "a part was merged and its staging table deleted": at(BigQueryClient, "delete", call=1, after=True),
    "all is delivered, which Spark has not heard": at(SinkRun, "deliver", after=True),
}


def check_interrupted(scenario: Scenario, interruption: Interruption, *, fresh: bool, epochs: int = 3) -> None:
    for _ in range(epochs):
        scenario.seal()
    with sized(part=1, slice_bytes=1000), scenario.sink(cores=8) as sink:
        interruption(sink)
    scenario.seal()  # which is of the next micro-batch
    if fresh:
        scenario.checkpoint = Checkpoint([])
    with sized(part=10**9), scenario.sink(cores=1) as sink:
        sink.run()
    scenario.check()
    assert scenario.run() == []


@pytest.mark.long(but=4)
@pytest.mark.parametrize("checkpoint", ["same", "fresh"])
@pytest.mark.parametrize(
    ("mode", "interruption"),
    [*(("append-only", one) for one in APPEND_INTERRUPTIONS), ("changelog", "one table was committed")],
)
def test_rows_are_appended_once_wherever_a_run_is_interrupted_and_however_the_next_is_split_into_parts(
    scenario_of: MakeScenario, mode: str, interruption: str, checkpoint: str
) -> None:
    check_interrupted(scenario_of(mode, seed=3), APPEND_INTERRUPTIONS[interruption], fresh=checkpoint == "fresh")


@pytest.mark.long
@pytest.mark.parametrize("interruption", ["one table was committed", "a commit has not answered"])
def test_a_table_is_committed_once_in_another_server_too(scenario_of: MakeScenario, interruption: str) -> None:
    check_interrupted(scenario_of("append-only", seed=3, server=LOCAL), APPEND_INTERRUPTIONS[interruption], fresh=True)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("number", "interruption"), list(enumerate(MERGE_INTERRUPTIONS)))
def test_rows_are_merged_once_wherever_a_run_is_interrupted_and_however_the_next_is_split_into_parts(
    scenario_of: MakeScenario, number: int, interruption: str
) -> None:
    scenario = scenario_of("merge-load", seed=3)
    scenario.history.tables = {"Singers": SINGERS}
    check_interrupted(scenario, MERGE_INTERRUPTIONS[interruption], fresh=number % 2 == 0, epochs=2)


def test_what_is_delivered_is_not_delivered_again_to_a_fresh_checkpoint(scenario_of: MakeScenario) -> None:
    scenario = scenario_of("append-only", seed=4)
    for _ in range(3):
        scenario.seal()
        assert scenario.run()
    scenario.checkpoint = Checkpoint([])
    scenario.run()
    scenario.check()


def test_the_streams_of_a_table_are_written_down_once_for_a_micro_batch_whoever_comes_second(tmp_path: Path) -> None:
    maker = SpoolMaker(tmp_path / "spool")
    commit_log = CommitLog(maker.spool)
    entered = commit_log.enter(1, "Singers", ("a", "b"))
    assert (entered.streams, entered.committed) == (("a", "b"), False)
    assert CommitLog(maker.spool).enter(1, "Singers", ("c",)) == entered
    commit_log.committed(1, entered)
    assert CommitLog(maker.spool).enter(1, "Singers", ("d",)).committed
    assert commit_log.enter(1, "singers", ("e",)).streams == ("e",)
    assert commit_log.enter(2, "Singers", ("f",)).streams == ("f",)


# What can be seen when


@pytest.mark.parametrize("mode", APPENDING)
def test_a_tables_rows_of_a_micro_batch_become_visible_together(
    scenario_of: MakeScenario, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = scenario_of(mode, seed=6)
    seen: list[tuple[int, int, int]] = []
    commit = BigQueryWriter.commit

    def watched(self: BigQueryWriter, streams: tuple[str, ...], *, entry: str) -> None:
        table = next(name for name in scenario.history.tables if scenario.place(name)[1] == self._table.name)
        before = len(scenario.rows(table))
        commit(self, streams, entry=entry)
        seen.append((len(streams), before, len(scenario.rows(table)) - before))

    monkeypatch.setattr(BigQueryWriter, "commit", watched)
    before = 0
    for _ in range(2):
        for _ in range(3):
            scenario.seal(2)
        with sized(part=1), scenario.sink() as sink:
            (said,) = sink.run()
        changes = scenario.history.changes[before:]
        rows = {sum(change.table == table for change in changes) for table in scenario.history.tables}
        assert {added for _, _, added in seen} == rows, "one commit brought all of a table's rows"
        assert all(streams > 1 for streams, _, _ in seen), "which had come by several tasks"
        assert said == f"{len(changes)} rows to 2 tables"
        before = len(scenario.history.changes)
        seen.clear()
    scenario.check()


# What has to be there


@pytest.mark.long(but=1)
@pytest.mark.parametrize("capture", WHOLE)
def test_appended_rows_in_the_order_of_their_numbers_as_text_replay_to_the_sources_rows(
    scenario_of: MakeScenario, capture: str
) -> None:
    scenario = scenario_of("append-only", seed=7, capture=capture, server=LOCAL)
    for _ in range(4):
        scenario.seal(2)
    scenario.run()
    for table in scenario.history.tables:
        rows: dict[object, object] = {}
        for row in sorted(scenario.rows(table), key=lambda row: str(row[METADATA][NUMBER])):
            key, others = scenario.parted(table, row)
            if row[METADATA]["change_type"] == "DELETE":
                del rows[key]
            else:
                rows[key] = others
        assert rows == expected_rows(merged(scenario.history, table))


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("mode", APPENDING)
def test_appended_tables_have_what_the_stream_captures_also_if_that_is_altered_midway(
    scenario_of: MakeScenario, mode: str, capture: str
) -> None:
    scenario = scenario_of(mode, seed=8, capture=capture)
    scenario.seal(5)
    scenario.history.capture = CAPTURES[CAPTURES.index(capture) - 1]
    scenario.seal(5)
    scenario.run()
    scenario.check()


@pytest.mark.long
def test_merged_tables_are_right_whatever_the_stream_captures_and_each_time_that_is_altered(
    scenario_of: MakeScenario,
) -> None:
    scenario = scenario_of("merge-load", seed=8)
    for _ in range(2):
        for capture in CAPTURES:
            scenario.history.capture = capture
            scenario.seal(3)
        scenario.run()
        scenario.check()


@pytest.mark.long
def test_rows_that_are_too_many_for_one_load_are_merged_by_whole_epochs_in_their_order(
    scenario_of: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "MERGED_BYTES", -1)
    merges: list[str] = []
    merge = BigQueryClient.query

    def counted(self: BigQueryClient, sql: str, dataset: str, name: str, **named: Any) -> None:
        merges.append(name)
        merge(self, sql, dataset, name, **named)

    monkeypatch.setattr(BigQueryClient, "query", counted)
    scenario = scenario_of("merge-load", seed=5, capture=OLD_AND_NEW)
    scenario.history.tables = {"Singers": SINGERS}
    for _ in range(3):
        scenario.seal(2)
    (said,) = scenario.run()
    assert said.startswith(f"{len(scenario.history.changes)} rows")
    assert merges == ["Singers"] * 3
    scenario.check()


@pytest.mark.long(but=2)
@pytest.mark.parametrize("mode", MODES)
def test_columns_are_added_and_a_dropped_one_is_null_in_new_rows_in_tables_of_each_schemas_dataset(
    scenario_of: MakeScenario, mode: str
) -> None:
    scenario = scenario_of(mode, seed=9, capture=OLD_AND_NEW, dataset="{0}_{schema}")
    scenario.seal(3)
    scenario.run()
    scenario.history.add("Singers", column("Seen", "TIMESTAMP", 9))
    scenario.history.add("music.Albums", column("Notes", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', 9))
    scenario.seal(3)
    scenario.history.drop("Singers", "Name")
    scenario.seal(3)
    scenario.run()
    scenario.check()


# The statement


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_the_statement_does_what_the_property_of_the_merger_says_of_it(scenario_of: MakeScenario, seed: int) -> None:
    """In any order: what is not newer than its row changes nothing."""
    random = Random(seed)
    scenario = scenario_of("merge-load")
    config = scenario.config()
    assert isinstance(config.sink, BigQueryConfig)
    client = BigQueryClient(config.sink.target(config.source))
    client.create_dataset(scenario.dataset, "US")
    table = bigquery_table(bigquery_merging.SCHEMA, BigQueryTableOptions(scenario.dataset, "merge-load"))
    client.create(table)
    merged_by_hand = bigquery_merging.Merged()
    rows = bigquery_merging.rows_of([drawn(random) for _ in range(30)])
    parts = []
    for first in range(0, 30, 10):
        merger = RowMerger(table)
        assert merger.add(rows.slice(first, 10)) == []
        parts.append((merger.fields, merger.lines()))
    for number in [1, 0, *random.sample(range(3), 3)]:
        fields, lines = parts[number]
        client.load(
            scenario.dataset, "staging", fields, lines, job_id=f"{scenario.dataset}_{random.random()}".replace(".", "")
        )
        path = f"{scenario.server.project}.{scenario.dataset}"
        client.query(merge_statement(table, f"{path}.Singers", f"{path}.staging"), scenario.dataset, "Singers")
        merged_by_hand.merge(lines)
        found = singers(scenario)
        assert found == {(region, key): row for (region, key), row in merged_by_hand.rows.items()}


def drawn(random: Random) -> bigquery_merging.Change:
    values = {
        "Name": random.choice([None, "", "b\n\"\\'€"]),
        "Born": random.choice([None, "0", "-9223372036854775808"]),
        "Tags": random.choice([None, [], ["b", ""]]),
    }
    named = dict(random.sample(sorted(values.items()), random.randrange(4)))
    key = (random.choice(["", "eu"]), random.choice(["1", "-2"]))
    return bigquery_merging.Change(random.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"]), key, named)


# All of it at random

CAMPAIGNS = [
    *((mode, DOUBLE, seed) for mode in APPENDING for seed in range(8)),
    *(("append-only", LOCAL, 1), ("merge-load", LOCAL, 0), ("merge-load", LOCAL, 1)),
]
SLOW = [
    *((mode, DOUBLE, seed) for mode in APPENDING for seed in range(8, 300)),
    *(one for mode in MODES for seed in range(60) if (one := (mode, LOCAL, seed)) not in CAMPAIGNS),
]


@pytest.mark.long(but=6)
@pytest.mark.parametrize(
    ("mode", "server", "seed"), [*CAMPAIGNS, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)]
)
def test_rows_arrive_once_in_runs_interrupted_at_random(
    scenario_of: MakeScenario, mode: str, server: str, seed: int
) -> None:
    random = Random(seed)
    options = {"dataset": "{0}_{schema}"} if random.random() < 0.2 else {}
    scenario = scenario_of(mode, seed, random.choice(CAPTURES), server, **options)
    if server == LOCAL:  # which takes its time
        scenario.history.tables = {"Singers": SINGERS}
    campaign(scenario, random)
