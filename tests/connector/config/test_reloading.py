"""The outcome of a reload for each option of an edited configuration."""

from dataclasses import fields
from itertools import combinations

import pytest
from pydantic import BaseModel

from connector.config import Config, validated
from connector.config.backfill_rules import BackfillRules
from connector.config.reloading.comparison import options_of, outcomes
from connector.config.reloading.fields import (
    APPLIED,
    NEEDS_RESTART,
    NOT_READ_BY_READER,
    READ_BY_SINK,
    REFUSED,
    Outcome,
    outcome_of,
)
from connector.config.sinks import sink_names, sink_type

SALT = "0123456789abcdef"
SOURCE = {
    "project": "p",
    "instance": "in",
    "database": "d",
    "change_stream": "S",
    "emulator_host": "localhost:1",
    "columns": {"hash": {"*.Name": {"salt": SALT}}},
}


def configured(section: str = "source", **options: object) -> Config:
    node: dict[str, object] = {"source": SOURCE, "spool": {"path": "gs://bucket/spool"}, "sink": {"path": "/events"}}
    given = node.get(section, {})
    assert isinstance(given, dict)
    return validated({**node, section: {**given, **options}})


def options() -> set[str]:
    """Every option of the models, by its dotted name."""
    found = set[str]()
    for name, info in Config.model_fields.items():
        models: list[object] = [sink_type(one).config_type for one in sink_names()] if name == "sink" else []
        if name == "source":
            found |= {f"source.backfill.{rule.name}" for rule in fields(BackfillRules)}
        for model in models or [info.annotation]:
            is_section = isinstance(model, type) and issubclass(model, BaseModel)
            found |= {f"{name}.{option}" for option in model.model_fields} if is_section else {name}  # type: ignore[attr-defined]
    return found


def test_every_option_is_in_exactly_one_of_the_three_sets_and_each_entry_is_an_option_or_a_section() -> None:
    sets = (APPLIED, NEEDS_RESTART, REFUSED)
    assert [one & other for one, other in combinations(sets, 2)] == [frozenset()] * 3
    entries = frozenset().union(*sets)
    whole = {"envelope", "sink", "status"}
    names = {name if (section := name.partition(".")[0]) not in whole else section for name in options()}
    assert entries == names, "classify a new option in connector/config/reloading/fields.py"
    assert {outcome_of(name) for name in options()} == set(Outcome)
    assert APPLIED >= READ_BY_SINK | NOT_READ_BY_READER


def test_options_of_a_backfill_are_applied_and_a_backfill_that_is_new_needs_a_restart() -> None:
    none, before, after = (configured(backfill=one) for one in (False, True, {"new_tables": True}))
    assert outcomes(before, after) == {"source.backfill.new_tables": Outcome.APPLIED}
    assert outcomes(none, before) == {"source.backfill": Outcome.NEEDS_RESTART}
    assert outcomes(after, none)["source.backfill"] is Outcome.NEEDS_RESTART


def test_the_options_of_a_configuration_are_those_of_its_models() -> None:
    assert {name for name, _ in options_of(configured())} <= options()


def test_an_option_that_is_in_no_set_is_an_error() -> None:
    with pytest.raises(KeyError):
        outcome_of("source.unheard_of")


@pytest.mark.parametrize(
    ("section", "option", "value", "outcome"),
    [
        ("source", "tables", {"exclude": ["Singers"]}, Outcome.APPLIED),
        ("source", "skip_transaction_tags", ["copy"], Outcome.APPLIED),
        ("source", "heartbeat", "5s", Outcome.APPLIED),
        ("source", "workers", 2, Outcome.APPLIED),
        ("source", "late_records", "dead-letter", Outcome.APPLIED),
        ("spark", "trigger", "5s", Outcome.APPLIED),
        ("spark", "config", {"spark.ui.enabled": "true"}, Outcome.NEEDS_RESTART),
        ("source", "rpc_priority", "low", Outcome.NEEDS_RESTART),
        ("source", "complete_rows", True, Outcome.NEEDS_RESTART),
        ("source", "end", "2030-01-01T00:00:00Z", Outcome.NEEDS_RESTART),
        ("source", "change_stream", "Other", Outcome.REFUSED),
        ("source", "placements", ["eu"], Outcome.REFUSED),
        ("source", "columns", {"hash": {"*.Name": {"salt": SALT + "x"}}}, Outcome.REFUSED),
        ("source", "columns", {}, Outcome.REFUSED),
        ("spool", "max_bytes", "1GiB", Outcome.APPLIED),
        ("spool", "keep", "1d", Outcome.APPLIED),
        ("spool", "path", "gs://bucket/other", Outcome.NEEDS_RESTART),
        ("sink", "path", "/others", Outcome.NEEDS_RESTART),
        ("status", "token", "secret", Outcome.NEEDS_RESTART),
        ("envelope", "format", "opencdc", Outcome.NEEDS_RESTART),
    ],
)
def test_a_changed_option_has_its_outcome(section: str, option: str, value: object, outcome: Outcome) -> None:
    assert outcomes(configured(), configured(section, **{option: value})) == {f"{section}.{option}": outcome}


def test_nothing_differs_between_a_configuration_and_its_like() -> None:
    assert outcomes(configured(), configured()) == {}


def test_a_sink_of_another_type_differs_in_its_options_too() -> None:
    found = outcomes(configured(), validated({**NODE, "sink": {"type": "tables", "path": "/t", "format": "delta"}}))
    assert "sink.type" in found
    assert set(found.values()) == {Outcome.NEEDS_RESTART}


NODE: dict[str, object] = {"source": SOURCE, "spool": {"path": "gs://bucket/spool"}}


def test_with_a_heartbeat_below_a_second_the_options_that_follow_it_differ_too() -> None:
    found = outcomes(configured(), configured(heartbeat="500ms"))
    assert found.keys() == {"source.heartbeat", "spool.seal_interval", "spark.trigger"}


def test_on_executors_everything_that_would_be_applied_needs_a_restart() -> None:
    before = configured(reader="executors")
    after = configured(reader="executors", tables={"exclude": ["A"]}, change_stream="Other")
    assert outcomes(before, after) == {
        "source.change_stream": Outcome.REFUSED,
        "source.tables": Outcome.NEEDS_RESTART,
    }


def test_the_way_to_read_changes_with_a_restart_alone() -> None:
    assert outcomes(configured(), configured(reader="executors")) == {"source.reader": Outcome.NEEDS_RESTART}
