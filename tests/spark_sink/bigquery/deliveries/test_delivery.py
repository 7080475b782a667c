"""Rows arrive in BigQuery exactly once, however often the sink is killed: without Spark, in this process.

What takes SQL is tried on local-bigquery; the rest for the most part on the double, which is a hundred times as fast.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from spark_sink.bigquery import loads as bigquery_loads
from spark_sink.bigquery.client import BigQueryClient
from spark_sink.bigquery.commit_log import Ledger
from spark_sink.bigquery.config import BigQueryConfig
from spark_sink.bigquery.row_merger import Fold, merge_statement
from spark_sink.bigquery.table import Shape, bigquery_table
from spark_sink.bigquery.writer import BigQueryWriter
from spark_sink.errors import SinkError
from tests.property import test_bigquery_row_merger as folding
from tests.spark_sink.bigquery.deliveries.histories import (
    CAPTURES,
    NEW_ROW,
    OLD_AND_NEW,
    SINGERS,
    WHOLE,
    History,
    column,
    merged,
)
from tests.spark_sink.bigquery.deliveries.lives import Checkpoint, Life
from tests.spark_sink.bigquery.deliveries.trials import (
    METADATA,
    NUMBER,
    Cut,
    Server,
    Trial,
    all_tasks,
    at,
    campaign,
    expected_rows,
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
def trial_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Trial]:
    def make(mode: str, seed: int = 0, capture: str = NEW_ROW, server: str = "", **options: object) -> Trial:
        found: Server = request.getfixturevalue(server or SERVER_OF[mode])
        return Trial(found, tmp_path, mode, History(Random(seed), capture), options)

    return make


MakeTrial = Callable[..., Trial]


# A life that is cut

APPENDED_CUTS = {
    "some tasks ran": some_tasks,
    "a task wrote a part of what it is to write": some_parts,
    "all tasks ran": all_tasks,
    "the streams of one table were written down": at(Ledger, "enter", call=1, after=True),
    "one table was committed": at(BigQueryWriter, "commit", call=2),
    "a commit has not answered": at(BigQueryWriter, "commit", call=1, after=True),
    "all was committed but the last note": at(Ledger, "committed", call=2),
    "all is delivered, which Spark has not heard": at(Life, "deliver", after=True),
}
MERGED_CUTS = {
    "a task wrote a part of what it is to write": some_parts,
    "a load has not answered": at(BigQueryClient, "load", call=2, after=True),
    "a merge has not answered": at(BigQueryClient, "merge", call=2, after=True),
    "a part was merged and its staging table deleted": at(BigQueryClient, "delete", call=1, after=True),
    "all is delivered, which Spark has not heard": at(Life, "deliver", after=True),
}


def check_cut(trial: Trial, cut: Cut, *, fresh: bool, epochs: int = 3) -> None:
    for _ in range(epochs):
        trial.seal()
    with sized(part=1, piece=1000), trial.life(cores=8) as life:
        cut(life)
    trial.seal()  # which is of the next micro-batch
    if fresh:
        trial.checkpoint = Checkpoint([])
    with sized(part=10**9), trial.life(cores=1) as life:
        life.run()
    trial.check()
    assert trial.run() == []


@pytest.mark.parametrize("checkpoint", ["same", "fresh"])
@pytest.mark.parametrize(
    ("mode", "cut"), [*(("append-only", cut) for cut in APPENDED_CUTS), ("changelog", "one table was committed")]
)
def test_rows_are_appended_once_wherever_a_life_is_cut_and_however_the_next_is_cut_into_parts(
    trial_of: MakeTrial, mode: str, cut: str, checkpoint: str
) -> None:
    check_cut(trial_of(mode, seed=3), APPENDED_CUTS[cut], fresh=checkpoint == "fresh")


@pytest.mark.parametrize("cut", ["one table was committed", "a commit has not answered"])
def test_a_table_is_committed_once_in_another_server_too(trial_of: MakeTrial, cut: str) -> None:
    check_cut(trial_of("append-only", seed=3, server=LOCAL), APPENDED_CUTS[cut], fresh=True)


@pytest.mark.parametrize(("number", "cut"), list(enumerate(MERGED_CUTS)))
def test_rows_are_merged_once_wherever_a_life_is_cut_and_however_the_next_is_cut_into_parts(
    trial_of: MakeTrial, number: int, cut: str
) -> None:
    trial = trial_of("merge-load", seed=3)
    trial.history.tables = {"Singers": SINGERS}
    check_cut(trial, MERGED_CUTS[cut], fresh=number % 2 == 0, epochs=2)


def test_what_is_delivered_is_not_delivered_again_to_a_fresh_checkpoint(trial_of: MakeTrial) -> None:
    trial = trial_of("append-only", seed=4)
    for _ in range(3):
        trial.seal()
        assert trial.run()
    trial.checkpoint = Checkpoint([])
    trial.run()
    trial.check()


def test_the_streams_of_a_table_are_written_down_once_for_a_micro_batch_whoever_comes_second(tmp_path: Path) -> None:
    maker = SpoolMaker(tmp_path / "spool")
    ledger = Ledger(maker.spool)
    entered = ledger.enter(1, "Singers", ("a", "b"))
    assert (entered.streams, entered.committed) == (("a", "b"), False)
    assert Ledger(maker.spool).enter(1, "Singers", ("c",)) == entered
    ledger.committed(1, entered)
    assert Ledger(maker.spool).enter(1, "Singers", ("d",)).committed
    assert ledger.enter(1, "singers", ("e",)).streams == ("e",)
    assert ledger.enter(2, "Singers", ("f",)).streams == ("f",)


# What can be seen when


@pytest.mark.parametrize("mode", APPENDING)
def test_a_tables_rows_of_a_micro_batch_become_visible_together(
    trial_of: MakeTrial, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = trial_of(mode, seed=6)
    seen: list[tuple[int, int, int]] = []
    commit = BigQueryWriter.commit

    def watched(self: BigQueryWriter, streams: tuple[str, ...], *, entry: str) -> None:
        table = next(name for name in trial.history.tables if trial.place(name)[1] == self._table.name)
        before = len(trial.rows(table))
        commit(self, streams, entry=entry)
        seen.append((len(streams), before, len(trial.rows(table)) - before))

    monkeypatch.setattr(BigQueryWriter, "commit", watched)
    before = 0
    for _ in range(2):
        for _ in range(3):
            trial.seal(2)
        with sized(part=1), trial.life() as life:
            (said,) = life.run()
        changes = trial.history.changes[before:]
        rows = {sum(change.table == table for change in changes) for table in trial.history.tables}
        assert {added for _, _, added in seen} == rows, "one commit brought all of a table's rows"
        assert all(streams > 1 for streams, _, _ in seen), "which had come by several tasks"
        assert said == f"{len(changes)} rows to 2 tables"
        before = len(trial.history.changes)
        seen.clear()
    trial.check()


# What has to be there


@pytest.mark.parametrize("capture", WHOLE)
def test_appended_rows_in_the_order_of_their_numbers_as_text_replay_to_the_sources_rows(
    trial_of: MakeTrial, capture: str
) -> None:
    trial = trial_of("append-only", seed=7, capture=capture, server=LOCAL)
    for _ in range(4):
        trial.seal(2)
    trial.run()
    for table in trial.history.tables:
        rows: dict[object, object] = {}
        for row in sorted(trial.rows(table), key=lambda row: str(row[METADATA][NUMBER])):
            key, others = trial.parted(table, row)
            if row[METADATA]["change_type"] == "DELETE":
                del rows[key]
            else:
                rows[key] = others
        assert rows == expected_rows(merged(trial.history, table))


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("mode", APPENDING)
def test_appended_tables_have_what_the_stream_captures_also_if_that_is_altered_midway(
    trial_of: MakeTrial, mode: str, capture: str
) -> None:
    trial = trial_of(mode, seed=8, capture=capture)
    trial.seal(5)
    trial.history.capture = CAPTURES[CAPTURES.index(capture) - 1]
    trial.seal(5)
    trial.run()
    trial.check()


def test_merged_tables_are_right_whatever_the_stream_captures_and_each_time_that_is_altered(
    trial_of: MakeTrial,
) -> None:
    trial = trial_of("merge-load", seed=8)
    for _ in range(2):
        for capture in CAPTURES:
            trial.history.capture = capture
            trial.seal(3)
        trial.run()
        trial.check()


def test_rows_that_are_too_many_for_one_load_are_merged_by_whole_epochs_in_their_order(
    trial_of: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bigquery_loads, "FOLDED", -1)
    merges: list[str] = []
    merge = BigQueryClient.merge

    def counted(self: BigQueryClient, sql: str, dataset: str, name: str, *, job_id: str) -> None:
        merges.append(name)
        merge(self, sql, dataset, name, job_id=job_id)

    monkeypatch.setattr(BigQueryClient, "merge", counted)
    trial = trial_of("merge-load", seed=5, capture=OLD_AND_NEW)
    trial.history.tables = {"Singers": SINGERS}
    for _ in range(3):
        trial.seal(2)
    (said,) = trial.run()
    assert said.startswith(f"{len(trial.history.changes)} rows")
    assert merges == ["Singers"] * 3
    trial.check()


@pytest.mark.parametrize("mode", MODES)
def test_columns_are_added_and_a_dropped_one_is_null_in_new_rows_in_tables_of_each_schemas_dataset(
    trial_of: MakeTrial, mode: str
) -> None:
    trial = trial_of(mode, seed=9, capture=OLD_AND_NEW, dataset="{0}_{schema}")
    trial.seal(3)
    trial.run()
    trial.history.add("Singers", column("Seen", "TIMESTAMP", 9))
    trial.history.add("music.Albums", column("Notes", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', 9))
    trial.seal(3)
    trial.history.drop("Singers", "Name")
    trial.seal(3)
    trial.run()
    trial.check()


# The statement


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_the_statement_does_what_the_property_of_the_fold_says_of_it(trial_of: MakeTrial, seed: int) -> None:
    """In any order: what is not newer than its row changes nothing."""
    random = Random(seed)
    trial = trial_of("merge-load")
    config = trial.config()
    assert isinstance(config.sink, BigQueryConfig)
    client = BigQueryClient(config.sink.target(config.source), failure=SinkError)
    client.create_dataset(trial.dataset, "US")
    table = bigquery_table(folding.SCHEMA, Shape(trial.dataset, "merge-load"))
    client.create(table)
    merged_by_hand = folding.Merged()
    rows = folding.rows_of([drawn(random) for _ in range(30)])
    parts = []
    for first in range(0, 30, 10):
        fold = Fold(table)
        assert fold.add(rows.slice(first, 10)) == []
        parts.append((fold.fields, fold.lines()))
    for number in [1, 0, *random.sample(range(3), 3)]:
        fields, lines = parts[number]
        client.load(
            trial.dataset, "staging", fields, lines, job_id=f"{trial.dataset}_{random.random()}".replace(".", "")
        )
        path = f"{trial.server.project}.{trial.dataset}"
        client.query(merge_statement(table, f"{path}.Singers", f"{path}.staging"), trial.dataset, "Singers")
        merged_by_hand.merge(lines)
        found = {
            (row["Region"], str(row["Id"])): {
                "Name": row["Name"],
                "Born": None if row["Born"] is None else str(row["Born"]),
                "Tags": row["Tags"],
            }
            for row in trial.rows("Singers")
        }
        assert found == {(region, key): row for (region, key), row in merged_by_hand.rows.items()}


def drawn(random: Random) -> folding.Change:
    values = {
        "Name": random.choice([None, "", "b\n\"\\'€"]),
        "Born": random.choice([None, "0", "-9223372036854775808"]),
        "Tags": random.choice([None, [], ["b", ""]]),
    }
    named = dict(random.sample(sorted(values.items()), random.randrange(4)))
    key = (random.choice(["", "eu"]), random.choice(["1", "-2"]))
    return folding.Change(random.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"]), key, named)


# All of it at random

CAMPAIGNS = [
    *((mode, DOUBLE, seed) for mode in APPENDING for seed in range(8)),
    *((mode, LOCAL, seed) for mode, seeds in (("append-only", 2), ("merge-load", 3)) for seed in range(seeds)),
]
SLOW = [
    *((mode, DOUBLE, seed) for mode in APPENDING for seed in range(8, 300)),
    *((mode, LOCAL, seed) for mode in MODES for seed in range(3, 60)),
]


@pytest.mark.parametrize(
    ("mode", "server", "seed"), [*CAMPAIGNS, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)]
)
def test_rows_arrive_once_in_lives_that_are_cut_at_random(
    trial_of: MakeTrial, mode: str, server: str, seed: int
) -> None:
    random = Random(seed)
    options = {"dataset": "{0}_{schema}"} if random.random() < 0.2 else {}
    trial = trial_of(mode, seed, random.choice(CAPTURES), server, **options)
    if server == LOCAL:  # which takes its time
        trial.history.tables = {"Singers": SINGERS}
    campaign(trial, random)
