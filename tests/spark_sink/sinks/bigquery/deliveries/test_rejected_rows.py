"""Rows that BigQuery rejects become dead letters, once, and are replayed: on the strict double, without Spark."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto

from connector.core.records import ColumnType
from connector.core.timestamps import SECOND
from connector.spool.sink_report import report_of
from emulator.bigquery.double import BigQueryDouble
from spark_sink.dead_letters_command import Replayed, replayed
from spark_sink.sinks.bigquery.commit_log import CommitLog
from spark_sink.sinks.bigquery.replay import replay_into
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.started_batches import StartedBatches
from tests.spark_sink.sinks.bigquery.deliveries.double_scenarios import STREAMED
from tests.spark_sink.sinks.bigquery.deliveries.histories import (
    CAPTURES,
)
from tests.spark_sink.sinks.bigquery.deliveries.runs import SinkRun
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    KilledError,
    MakeScenario,
    Scenario,
    at,
    interrupted_runs,
    killed_at,
    sized,
)
from tests.spark_sink.spools import KEY, NAME, START, record

# Rows that BigQuery rejects


def dead_letters_of(scenario: Scenario) -> list[tuple[int, str]]:
    """The ids and the reasons of the dead letters."""
    letters = DeadLetters(str(scenario.dead_letters))
    found: list[tuple[int, str]] = []
    for file in letters.files():
        rows, reasons = letters.read(file)
        ids = [int(payload.partition('"Id":"')[2].partition('"')[0]) for payload in rows.column("payload").to_pylist()]
        found += zip(ids, reasons, strict=True)
    return sorted(found)


def replay(scenario: Scenario) -> Replayed:
    letters = DeadLetters(str(scenario.dead_letters))
    with replay_into(scenario.config()) as into:
        return replayed(letters, letters.files(), into, [])


def names_of(scenario: Scenario) -> list[tuple[int, object]]:
    return sorted((row["Id"], row["Name"]) for row in scenario.rows("Singers"))


@pytest.mark.parametrize("piece", [1, 10**6])
@pytest.mark.parametrize("mode", STREAMED)
def test_rows_that_the_server_rejects_become_dead_letters_with_its_reason_and_the_rest_of_the_request_is_written(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble, mode: str, piece: int
) -> None:
    scenario = double_scenario(mode)
    bigquery_double.refuse("Name", "bad", "this is no name")
    bigquery_double.refuse("Name", "worse", "this is none either")
    scenario.maker.seal(
        *(
            record(START + SECOND, ids, values={"Name": name}, sequence=number)
            for number, (ids, name) in enumerate(
                [([1, 2], "a"), ([3], "bad"), ([4], "worse"), ([5], "b"), ([6], "bad")]
            )
        ),
        record(START + SECOND, [9], table="Other", sequence=9),
    )
    with sized(part=10**9, slice_bytes=piece), scenario.sink() as sink:
        (said,) = sink.run()
    assert said == f"4 rows to 2 tables, 3 to the dead letters at {scenario.dead_letters}"
    assert dead_letters_of(scenario) == [
        (3, "BigQuery rejects it: Name: this is no name"),
        (4, "BigQuery rejects it: Name: this is none either"),
        (6, "BigQuery rejects it: Name: this is no name"),
    ]
    assert names_of(scenario) == [(1, "a"), (2, "a"), (5, "b")]
    assert len(scenario.rows("Other")) == 1

    bigquery_double.take_all()
    bigquery_double.refuse("Name", "worse", "this is none either")  # the other is right now
    assert replay(scenario) == Replayed(sent=2, rejected=1)
    assert [letter for letter, _ in dead_letters_of(scenario)] == [4]
    bigquery_double.take_all()
    assert replay(scenario) == Replayed(sent=1)
    assert dead_letters_of(scenario) == []
    assert names_of(scenario) == [(1, "a"), (2, "a"), (3, "bad"), (4, "worse"), (5, "b"), (6, "bad")]


@pytest.mark.parametrize("mode", STREAMED)
def test_rows_that_cannot_be_made_and_rows_that_the_server_rejects_are_distinguished(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble, mode: str
) -> None:
    scenario = double_scenario(mode)
    bigquery_double.refuse("Name", "bad", "no")
    columns = (KEY, NAME, ColumnType("Tags", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', False, 3))
    rows: list[dict[str, object]] = [
        {"Name": "a"},
        {"Name": "b", "Tags": [None]},
        {"Name": "c"},
        {"Name": "bad", "Tags": [None]},
        {"Name": "bad"},
        {"Name": "d", "Tags": [None]},
        {"Name": "e"},
    ]
    scenario.maker.seal(
        *(
            record(START + SECOND, [number], columns=columns, values=values, sequence=number)
            for number, values in enumerate(rows)
        )
    )
    scenario.run()
    null = (
        "column Tags has a NULL inside an array, which BigQuery's REPEATED columns cannot hold: set sink.arrays: json"
    )
    assert dead_letters_of(scenario) == [(1, null), (3, null), (4, "BigQuery rejects it: Name: no"), (5, null)]
    assert names_of(scenario) == [(0, "a"), (2, "c"), (6, "e")]


@pytest.mark.parametrize("mode", STREAMED)
def test_more_rejected_rows_than_a_response_holds_are_all_found(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble, mode: str
) -> None:
    scenario = double_scenario(mode)
    bigquery_double.refuse("Name", "bad", "no")
    scenario.maker.seal(
        record(START + SECOND, range(250), values={"Name": "bad"}), record(START + SECOND, [999], sequence=1)
    )
    (said,) = scenario.run()
    assert said.startswith("1 rows to 1 tables, 250 to the dead letters")
    assert (len(dead_letters_of(scenario)), names_of(scenario)) == (250, [(999, "n")])


def test_a_late_dead_letter_changes_nothing_that_came_after_it(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble
) -> None:
    scenario = double_scenario()
    bigquery_double.refuse("Name", "bad", "no")
    scenario.maker.seal(record(START + SECOND, [1, 2, 3], values={"Name": "bad"}))
    scenario.run()
    scenario.maker.seal(record(START + 2 * SECOND, [1], mod_type="UPDATE", values={"Name": "later"}))
    scenario.maker.seal(record(START + 3 * SECOND, [2], mod_type="DELETE"))
    scenario.run()
    bigquery_double.take_all()
    assert replay(scenario) == Replayed(sent=3)
    assert names_of(scenario) == [(1, "later"), (3, "bad")]


def test_dead_letters_of_many_micro_batches_are_replayed_in_the_order_of_commits(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble
) -> None:
    scenario = double_scenario("append-only")
    bigquery_double.refuse("Name", "bad", "no")
    for number in range(1, 12):
        scenario.maker.seal(record(START + number * SECOND, [number], values={"Name": "bad"}))
        scenario.run()
    files = DeadLetters(str(scenario.dead_letters)).files()
    assert [file.oldest for file in files] == sorted(file.oldest for file in files)
    bigquery_double.take_all()
    assert replay(scenario) == Replayed(sent=11)
    assert [row["Id"] for row in scenario.rows("Singers")] == list(range(1, 12))


@pytest.mark.parametrize(
    "point", [(BigQueryWriter, "append", True), (DeadLetters, "replace", False), (DeadLetters, "replace", True)]
)
def test_a_replay_that_is_killed_is_done_again_and_merges_nothing_twice(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble, point: tuple[type, str, bool]
) -> None:
    scenario = double_scenario()
    bigquery_double.refuse("Name", "bad", "no")
    for number in (1, 2):
        scenario.maker.seal(record(START + number * SECOND, [number, 7], values={"Name": "bad"}))
        scenario.run()
    bigquery_double.take_all()
    owner, method, after = point
    with killed_at(owner, method, after=after), pytest.raises(KilledError):
        replay(scenario)
    replay(scenario)
    assert (dead_letters_of(scenario), names_of(scenario)) == ([], [(1, "bad"), (2, "bad"), (7, "bad")])
    assert bigquery_double.conflicts(scenario.dataset, "Singers") == 0


@pytest.mark.long(but=3)
@pytest.mark.parametrize("seed", [0, 1, 8, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(9, 200))])
@pytest.mark.parametrize("mode", ["append-only", "changelog"])
def test_every_change_is_appended_or_a_dead_letter_and_never_both_in_runs_interrupted_at_random(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble, mode: str, seed: int
) -> None:
    random = Random(seed)
    scenario = double_scenario(mode, seed, random.choice(CAPTURES))
    bigquery_double.refuse("Name", "a", "no")
    bigquery_double.refuse("Out", True, "no")
    interrupted_runs(scenario, random)
    letters = DeadLetters(str(scenario.dead_letters))
    for table in scenario.history.tables:
        made = Counter(int(change.number[:16], 16) for change in scenario.history.changes if change.table == table)
        there = Counter(scenario.commit_of(row) for row in scenario.rows(table))
        for file in letters.files(table):
            numbers = letters.read(file)[0].column("change_sequence_number").to_pylist()
            there.update(int(number[:16], 16) for number in numbers)
        assert there == made
    assert letters.files()


def _delivered(scenario: Scenario, first: int, last: int) -> list[str]:
    """Delivers four rows, the first and the last with a name of so many characters."""
    scenario.maker.seal(
        record(START + SECOND, [1], values={"Name": "x" * first}),
        record(START + SECOND, [2, 3], sequence=1),
        record(START + SECOND, [4], values={"Name": "x" * last}, sequence=2),
    )
    return scenario.run()


@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", STREAMED)
def test_a_row_of_up_to_20_mb_is_written_and_a_larger_one_becomes_a_dead_letter(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(bigquery_double, "largest_request", 20_000_000)
    scenario = double_scenario(mode)
    (said,) = _delivered(scenario, 19_500_000, 19_490_000)
    assert said.startswith("3 rows to 1 tables, 1 to the dead letters")
    assert dead_letters_of(scenario) == [(1, "the row is too large for BigQuery: it has more than 19,500,000 bytes")]
    found = names_of(scenario)
    assert [key for key, _ in found] == [2, 3, 4]
    assert len(str(found[-1][1])) == 19_490_000


@pytest.mark.parametrize("mode", STREAMED)
def test_a_row_that_bigquery_finds_too_large_becomes_a_dead_letter_and_the_others_are_written(
    double_scenario: MakeScenario, mode: str
) -> None:
    scenario = double_scenario(mode)
    (said,) = _delivered(scenario, 10_000_000, 9_490_000)
    assert said.startswith("3 rows to 1 tables, 1 to the dead letters")
    ((key, why),) = dead_letters_of(scenario)
    assert (key, why[:49]) == (1, "the row is too large for BigQuery: it has 10,000,")
    assert [key for key, _ in names_of(scenario)] == [2, 3, 4]
    assert replay(scenario) == Replayed(rejected=1)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", ["append-only", "merge"])
def test_rows_that_grow_on_their_way_are_cut_into_requests_that_bigquery_takes(
    double_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A zero of an array takes two bytes in the spool and ten in a message, so 4 MB there are 20 MB here."""
    requests = []
    append = BigQueryWriter.append

    def watched(
        self: BigQueryWriter, stream: str, descriptor: DescriptorProto, rows: Sequence[bytes], offset: int | None = None
    ) -> list[tuple[int, str]]:
        requests.append(sum(map(len, rows)))
        return append(self, stream, descriptor, rows, offset)

    monkeypatch.setattr(BigQueryWriter, "append", watched)
    numbers = ColumnType("Numbers", '{"array_element_type":{"code":"FLOAT64"},"code":"ARRAY"}', False, 99)
    columns = (KEY, *(ColumnType(f"c{number}", '{"code":"INT64"}', False, number) for number in range(2, 20)), numbers)
    scenario = double_scenario(mode)
    scenario.maker.seal(record(START + SECOND, range(40), columns=columns, values={"Numbers": [0] * 50_000}))
    (said,) = scenario.run()
    assert said == "40 rows to 1 tables"
    assert sum(requests) > 20_000_000
    assert max(requests) < 10_000_000
    assert sorted((row["Id"], len(row["Numbers"])) for row in scenario.rows("Singers")) == [
        (key, 50_000) for key in range(40)
    ]


@pytest.mark.parametrize("mode", STREAMED)
def test_dead_letters_are_there_once_though_their_micro_batch_is_done_again(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble, mode: str
) -> None:
    scenario = double_scenario(mode)
    bigquery_double.refuse("Name", "bad", "no")
    scenario.maker.seal(record(START + SECOND, [1, 2]), record(START + SECOND, [3], values={"Name": "bad"}, sequence=1))
    with scenario.sink() as sink:
        at(SinkRun, "deliver", after=True)(sink)
    assert StartedBatches(scenario.maker.spool, "bigquery").at(1) is not None
    scenario.run()
    assert [key for key, _ in dead_letters_of(scenario)] == [3]
    assert names_of(scenario) == [(1, "n"), (2, "n")]


def test_keys_and_arrays_that_bigquery_cannot_hold_become_dead_letters_and_the_options_that_hold_them_let_them_in(
    double_scenario: MakeScenario,
) -> None:
    scenario = double_scenario()
    key = ColumnType("Id", '{"code":"TIMESTAMP"}', True, 1)
    timestamp = "2026-01-02T03:04:05.123456789Z"
    scenario.maker.seal(record(START + SECOND, [timestamp], columns=(key, NAME)))  # type: ignore[list-item]
    scenario.run()
    assert ["set sink.timestamps: text" in reason for _, reason in _reasons(scenario)] == [True]
    scenario.dataset += "_text"
    scenario.options["timestamps"] = "text"
    assert replay(scenario) == Replayed(sent=1)
    assert [row["Id"] for row in scenario.rows("Singers")] == [timestamp]


def _reasons(scenario: Scenario) -> list[tuple[str, str]]:
    return [(file.table, reason) for file in DeadLetters(str(scenario.dead_letters)).files() for reason in file.reasons]


@pytest.mark.parametrize("mode", ["append-only", "changelog"])
@pytest.mark.parametrize(
    ("owner", "method"), [(CommitLog, "enter"), (BigQueryWriter, "commit"), (CommitLog, "committed")]
)
def test_dead_letters_of_a_micro_batch_that_was_killed_before_its_report_are_counted_once(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble, mode: str, owner: type, method: str
) -> None:
    scenario = double_scenario(mode)
    bigquery_double.refuse("Name", "bad", "this is no name")
    scenario.maker.seal(
        *(record(START + n * SECOND, [n], values={"Name": name}) for n, name in enumerate(["a", "bad", "b", "bad"], 1))
    )
    with sized(part=1, slice_bytes=1):
        with scenario.sink() as sink:
            at(owner, method, after=True)(sink)
        assert report_of(scenario.maker.spool, "bigquery").refused == 0
        scenario.run()
    assert [number for number, _ in dead_letters_of(scenario)] == [2, 4]
    report = report_of(scenario.maker.spool, "bigquery")
    assert (report.refused, report.events) == (2, 2)
