"""With ``sink.update_pairs`` an update with old values is two rows in an appended table, together or not at all."""

from dataclasses import replace

import pytest

from connector.config.sinks import WatchedStream
from connector.core.records import Mod
from connector.core.timestamps import SECOND
from connector.envelope.envelope import SCHEMA
from connector.errors import ConfigurationError
from emulator.bigquery.double import BigQueryDouble
from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.rows.update_pairs import paired
from spark_sink.sinks.bigquery.sink_type import SINK
from spark_sink.sinks.bigquery.tables.table import BigQueryTableOptions
from spark_sink.sinks.bigquery.writing import table_rows
from spark_sink.sinks.bigquery.writing.parts import PinnedOptions
from spark_sink.sinks.shared.replica_rows import sort_keys_of
from tests.connector.builders import column
from tests.spark_sink.sinks.bigquery.deliveries.histories import NEW_ROW_AND_OLD, OLD_AND_NEW, Key, Row
from tests.spark_sink.sinks.bigquery.deliveries.runs import configured
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import METADATA, NUMBER, MakeScenario, Scenario
from tests.spark_sink.sinks.bigquery.rows.built import change, enveloped
from tests.spark_sink.sinks.bigquery.tables.edits import BYTES, NUMBERS, reasons_of, replay
from tests.spark_sink.spools import NAME, START, record

COLUMNS = (column("Id", "INT64", 1, key=True), column("Name", "STRING", 2), column("Code", "STRING", 3))


def types_and_rows(scenario: Scenario, table: str) -> list[tuple[str, tuple[Key, Row]]]:
    """The change type of each row, and the row by key and other columns, in the order of their numbers."""
    found = sorted(scenario.rows(table), key=lambda row: row[METADATA][NUMBER])
    assert len({row[METADATA][NUMBER] for row in found}) == len({row[METADATA]["uuid"] for row in found}) == len(found)
    return [(row[METADATA]["change_type"], scenario.parted(table, row)) for row in found]


@pytest.mark.parametrize("capture", [NEW_ROW_AND_OLD, OLD_AND_NEW])
def test_each_update_is_the_row_before_it_and_the_row_after_it(double_scenario: MakeScenario, capture: str) -> None:
    scenario = double_scenario("append-only", 3, capture, update_pairs=True)
    scenario.seal(12)
    scenario.seal(12)
    scenario.run()
    updates = 0
    for table in scenario.history.tables:
        rows: dict[Key, Row] = {}
        last = ""
        for kind, (key, others) in types_and_rows(scenario, table):
            assert (kind == "UPDATE-INSERT") == (last == "UPDATE-DELETE")
            if kind == "UPDATE-DELETE":
                updates += 1
                if capture == NEW_ROW_AND_OLD:
                    assert rows[key] == others
            rows[key], last = others, kind
    assert updates > 10


def test_pairs_have_numbers_between_those_of_the_changes_around() -> None:
    kinds = ("INSERT", "UPDATE", "DELETE")
    events = enveloped(
        *(
            replace(
                change(COLUMNS, "{}", mod_type=kind, record_sequence=f"{number:08d}"),
                mods=(Mod('{"Id":"7"}', '{"Name":"new"}', '{"Name":null}'),),
            )
            for number, kind in enumerate(kinds)
        )
    )
    rows, of_event = paired(events)
    assert of_event.tolist() == [0, 1, 1, 2]
    assert rows.schema.equals(SCHEMA)
    assert rows.column("payload")[1].as_py() == '{"Id":"7","Name":null}'
    numbers = rows.column("change_sequence_number").to_pylist()
    assert numbers == sorted(numbers)
    assert sort_keys_of(numbers[1]) == sort_keys_of(numbers[2])
    assert rows.column("payload")[2] == events.column("payload")[1]


def test_events_without_old_values_are_as_they_are() -> None:
    events = enveloped(change(COLUMNS, '{"Id":"7","Name":"n"}', mod_type="UPDATE"))
    rows, of_event = paired(events)
    assert (rows.to_pylist(), of_event.tolist()) == (events.to_pylist(), [0])


def test_an_update_one_of_whose_rows_is_rejected_is_one_dead_letter_and_both_are_appended_when_it_is_replayed(
    double_scenario: MakeScenario,
) -> None:
    scenario = double_scenario("append-only", update_pairs=True)
    update = record(START + SECOND, [1], mod_type="UPDATE", columns=(NAME, NUMBERS))
    update = replace(update, column_types=(column("Id", "INT64", 1, key=True), NAME, NUMBERS))
    old = Mod('{"Id":"1"}', '{"Name":"a","Numbers":["1"]}', '{"Numbers":[null]}')
    other = Mod('{"Id":"2"}', '{"Name":"b","Numbers":["1"]}', '{"Numbers":["2"]}')
    scenario.maker.seal(replace(update, mods=(old, other)))
    scenario.run()
    assert [kind for kind, (key, _) in types_and_rows(scenario, "Singers")] == ["UPDATE-DELETE", "UPDATE-INSERT"]
    assert any("set sink.arrays: json" in reason for reason in reasons_of(scenario))
    scenario.dataset += "_json"
    assert replay(scenario, arrays="json") == Replayed(sent=1)
    assert [kind for kind, _ in types_and_rows(scenario, "Singers")] == ["UPDATE-DELETE", "UPDATE-INSERT"]


def test_rows_that_do_not_fit_a_request_together_are_rejected_together(
    double_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_rows, "LARGEST", 1000)
    scenario = double_scenario("append-only", update_pairs=True)
    update = replace(record(START + SECOND, [1], mod_type="UPDATE"), mods=(Mod('{"Id":"1"}', '{"Name":"n"}', "{}"),))
    large = replace(update.mods[0], old_values=f'{{"Name":"{"x" * 900}"}}')
    scenario.maker.seal(replace(update, mods=(large, replace(large, keys='{"Id":"2"}', old_values='{"Name":"o"}'))))
    scenario.run()
    assert [key for _, (key, _) in types_and_rows(scenario, "Singers")] == [("2",), ("2",)]
    (reason,) = reasons_of(scenario)
    assert reason.startswith("the two rows of the update are too large for BigQuery: together they have more than")


def test_a_request_has_whole_events_and_a_large_one_has_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_rows, "_REQUEST", 8)
    sizes, events = [4, 4, 1, 18, 3, 5, 1], [0, 1, 2, 2, 3, 4, 5]
    runs = table_rows._requests([b"x" * size for size in sizes], events)
    assert list(runs) == [range(2), range(2, 4), range(4, 6), range(6, 7)]


def test_a_pair_that_bigquery_finds_too_large_is_a_dead_letter(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bigquery_double, "largest_request", 9_600_000)
    scenario = double_scenario("append-only", update_pairs=True)
    update = replace(record(START + SECOND, [1], mod_type="UPDATE"), mods=(Mod('{"Id":"1"}', '{"Name":"n"}', "{}"),))
    large = replace(
        update.mods[0], new_values=f'{{"Name":"{"y" * 5_000_000}"}}', old_values=f'{{"Name":"{"x" * 5_000_000}"}}'
    )
    small = replace(large, keys='{"Id":"2"}', new_values='{"Name":"n"}', old_values='{"Name":"o"}')
    scenario.maker.seal(replace(update, mods=(large, small)))
    scenario.run()
    assert [key for _, (key, _) in types_and_rows(scenario, "Singers")] == [("2",), ("2",)]
    (reason,) = reasons_of(scenario)
    assert reason.startswith("the row is too large for BigQuery: it has 10,000,")


def test_an_old_value_of_a_type_that_changed_since_is_not_read_by_the_new_one(double_scenario: MakeScenario) -> None:
    scenario = double_scenario("append-only", update_pairs=True)
    update = record(START + SECOND, [1], mod_type="UPDATE")
    scenario.maker.seal(
        replace(update, mods=(Mod('{"Id":"1"}', '{"Name":null}', '{"Name":"abcd"}'),)),
        record(START + 2 * SECOND, [2], columns=(column("Id", "INT64", 1, key=True), BYTES), values={"Name": "YQ=="}),
    )
    scenario.run()
    assert reasons_of(scenario) == {"column Name was STRING when the row was changed, and is BYTES since"}
    assert [kind for kind, _ in types_and_rows(scenario, "Singers")] == ["INSERT"]


@pytest.mark.parametrize("capture", ["NEW_ROW", "NEW_VALUES"])
def test_a_stream_without_old_values_is_refused(double_scenario: MakeScenario, capture: str) -> None:
    sink = double_scenario("append-only", update_pairs=True).config().sink
    assert isinstance(sink, BigQueryConfig)
    (error,) = SINK.stream_errors(sink, WatchedStream("Everything", capture, "googlesql", ""))
    assert error == (
        f"sink.update_pairs: updates have no old values, because change stream Everything captures {capture}: set its"
        " value_capture_type to OLD_AND_NEW_VALUES or NEW_ROW_AND_OLD_VALUES"
    )


@pytest.mark.parametrize("mode", ["merge", "merge-load", "changelog"])
def test_other_modes_have_no_pairs(mode: str) -> None:
    said = f"sink.update_pairs: is for mode append-only, and sink.mode is {mode}"
    with pytest.raises(ConfigurationError, match=said):
        configured("/spool", dataset="d", mode=mode, update_pairs=True)


def test_pinned_options_without_newer_ones_have_the_text_of_version_0_2_0() -> None:
    plain = PinnedOptions("p", BigQueryTableOptions("d", "append-only"), 1)
    assert plain.to_text() == (
        '{"part_bytes":1,"project":"p","shape":{"arrays":"repeated","dataset":"d","default_schema":"",'
        '"mode":"append-only","numeric":"string","partition_by":"","prefix":"","timestamps":"micros"}}'
    )
    pairs, clustered = replace(plain.table_options, update_pairs=True), replace(plain.table_options, layout="{}")
    for one in (plain, PinnedOptions("p", pairs, 1), PinnedOptions("p", clustered, 1)):
        assert PinnedOptions.from_text(one.to_text()) == one
