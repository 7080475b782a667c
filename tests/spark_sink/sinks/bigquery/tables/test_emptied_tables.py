"""Stopped tables of BigQuery whose dead letters were removed by hand: a replay finds out whether they are repaired."""

from pathlib import Path

import pytest
import yaml

from connector.spool.sink_report import report_of
from emulator.bigquery.double import BigQueryDouble
from spark_sink.dead_letters_command import main
from spark_sink.sinks.shared.dead_letters import DeadLetters
from tests.spark_sink.sinks.bigquery.deliveries.runs import SOURCE
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import Delivered, Scenario, Sealing, ids_of
from tests.spark_sink.sinks.bigquery.tables.edits import dead_letters_of, recreate, typed


def written(scenario: Scenario) -> str:
    """A file of the scenario's configuration."""
    sink = scenario.config().sink.model_dump(mode="json", exclude_unset=True)
    sink["dead_letters"] = f"{scenario.maker.path}-letters"
    path = scenario.folder / "config.yaml"
    path.write_text(yaml.safe_dump({"source": SOURCE, "spool": {"path": scenario.maker.path}, "sink": sink}))
    return str(path)


def stopped(server: BigQueryDouble, delivered: Delivered, mode: str, *tables: str) -> tuple[Scenario, Sealing]:
    """Tables, by default one, the first of which is stopped, because its column Name has another type in BigQuery."""
    scenario, seal = delivered(server, mode, [1], *tables or ("Singers",))
    recreate(scenario, typed("Name", "INT64"))
    seal([2])
    scenario.run()
    assert dead_letters_of(scenario) == {"Singers": 1}
    assert list(stopped_of(scenario)) == ["Singers"]
    return scenario, seal


def stopped_of(scenario: Scenario) -> dict[str, str]:
    return report_of(scenario.maker.spool, "bigquery").stopped


def remove_dead_letters(scenario: Scenario) -> None:
    for path in Path(scenario.dead_letters).rglob("*.jsonl"):
        path.unlink()


@pytest.mark.parametrize("arguments", [[], ["--table", "Singers"]])
@pytest.mark.parametrize("mode", ["append-only", "merge"])
def test_a_repaired_table_continues_though_its_dead_letters_were_removed(
    bigquery_double: BigQueryDouble,
    delivered: Delivered,
    capsys: pytest.CaptureFixture[str],
    mode: str,
    arguments: list[str],
) -> None:
    scenario, seal = stopped(bigquery_double, delivered, mode)
    recreate(scenario, typed("Name", ""))
    remove_dead_letters(scenario)
    assert main(["replay", written(scenario), *arguments]) == 0
    assert "a stopped table continues without its dead letters, which were removed" in capsys.readouterr().err
    assert stopped_of(scenario) == {}
    seal([3])
    scenario.run()
    assert (ids_of(scenario), dead_letters_of(scenario)) == ([3], {})


def test_a_table_that_is_not_repaired_stays_stopped_without_dead_letters(
    bigquery_double: BigQueryDouble, delivered: Delivered, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, seal = stopped(bigquery_double, delivered, "append-only")
    remove_dead_letters(scenario)
    assert main(["replay", written(scenario)]) == 1
    said = capsys.readouterr().err
    assert "a table stays stopped" in said
    assert "column Name is INT64 in BigQuery, and would be STRING" in said
    assert list(stopped_of(scenario)) == ["Singers"]
    seal([3])
    scenario.run()
    assert dead_letters_of(scenario) == {"Singers": 1}


def test_a_table_without_dead_letters_continues_beside_the_replay_of_another(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, seal = stopped(bigquery_double, delivered, "append-only", "Singers", "Other")
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([4], "Other", values={"Name": "bad"})
    scenario.run()
    bigquery_double.take_all()
    recreate(scenario, typed("Name", ""))
    DeadLetters(str(scenario.dead_letters)).discard("Singers", f"{scenario.maker.spool_id}_2")
    assert dead_letters_of(scenario) == {"Other": 1}
    assert main(["replay", written(scenario), "--table", "Other"]) == 0
    assert stopped_of(scenario) == {}
    assert ids_of(scenario, "Other") == [1, 4]


def test_a_stopped_table_of_which_dead_letters_are_left_does_not_continue_with_those_of_another(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, seal = stopped(bigquery_double, delivered, "append-only", "Singers", "Other")
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([4], "Other", values={"Name": "bad"})
    scenario.run()
    bigquery_double.take_all()
    recreate(scenario, typed("Name", ""))
    assert main(["replay", written(scenario), "--table", "Other"]) == 0
    assert list(stopped_of(scenario)) == ["Singers"]
    assert main(["replay", written(scenario)]) == 0
    assert stopped_of(scenario) == {}


def test_a_sink_of_another_dataset_makes_no_table_for_one_that_was_stopped_elsewhere(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, _ = stopped(bigquery_double, delivered, "append-only")
    remove_dead_letters(scenario)
    scenario.options["dataset"] = "{}_later"
    assert main(["replay", written(scenario)]) == 1, "the table of the first dataset stays stopped"
    with pytest.raises(KeyError):
        bigquery_double.rows(f"{scenario.dataset}_later", "Singers")


def test_a_sink_that_runs_keeps_its_stopped_tables(
    bigquery_double: BigQueryDouble, delivered: Delivered, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, _ = stopped(bigquery_double, delivered, "append-only")
    recreate(scenario, typed("Name", ""))
    remove_dead_letters(scenario)
    with scenario.maker.spool.storage.locked("consumers/bigquery.sink.lock", "the sink runs"):
        assert main(["replay", written(scenario)]) == 1
    assert "stop it, and replay again" in capsys.readouterr().err
    assert list(stopped_of(scenario)) == ["Singers"]
