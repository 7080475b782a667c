"""The drawing of a scenario: its seed, its arguments, its schema."""

from collections import Counter

from connector.core.timestamps import SECOND
from emulator.scenario.capture import CAPTURE_TYPES
from emulator.scenario.history import (
    PartitionMode,
)
from emulator.scenario.scenario import Scenario
from emulator.workload.tables import TABLES
from tests.emulator.scenario.drawn import MODES, ORIGIN, over_modes, scenarios


def test_columns_are_listed_with_the_dialects_annotations() -> None:
    listed: dict[str, set[tuple[object, ...]]] = {
        made.dialect: {
            (column.name, column.code, column.array, column.is_primary_key, column.ordinal_position, column.annotation)
            for change in made.history.changes()
            if change.table in ("sales.Invoices", "Singers")
            for column in change.columns
        }
        for made in scenarios("IMMUTABLE_KEY_RANGE")
    }
    for dialect, numeric, json in (("googlesql", "", ""), ("postgresql", "PG_NUMERIC", "PG_JSONB")):
        assert ("InvoiceId", "INT64", False, True, 1, "") in listed[dialect]
        assert ("Amount", "NUMERIC", False, False, 2, numeric) in listed[dialect]
        assert ("Details", "JSON", False, False, 3, json) in listed[dialect]
        assert ("UpdatedAt", "TIMESTAMP", False, False, 5, "") in listed[dialect]


@over_modes
def test_a_column_is_added_at_one_timestamp_even_within_a_transaction(mode: PartitionMode) -> None:
    mixed = 0
    for seed in range(10):
        made = Scenario.generate(seed, origin=ORIGIN, seconds=20, mode=mode, schema_change=True)
        (changed,) = (table for table in made.tables if table.columns[-1].name == "Added1")
        records = [change for change in made.history.in_commit_order() if change.table == changed.name]
        has = [any(column.name == "Added1" for column in change.columns) for change in records]
        first_with = records[has.index(True)].commit_timestamp
        assert all(
            (change.commit_timestamp > first_with) <= listed and (change.commit_timestamp < first_with) <= (not listed)
            for change, listed in zip(records, has, strict=True)
        )
        mixed += (
            len({listed for change, listed in zip(records, has, strict=True) if change.commit_timestamp == first_with})
            > 1
        )
        assert any(
            mod.new_values["Added1"] is not None
            for change in records
            for mod in change.mods
            if "Added1" in mod.new_values
        )
    assert mixed


def test_without_a_schema_change_the_tables_are_those_of_the_sample() -> None:
    assert Scenario.generate(1, origin=ORIGIN, seconds=5, schema_change=False).tables == TABLES


def test_the_same_seed_gives_the_same_scenario() -> None:
    def made(seed: int) -> Scenario:
        return Scenario.generate(seed, origin=ORIGIN, seconds=5, value_capture_type=None)

    assert made(3) == made(3)
    assert made(3) != made(4)


def test_arguments_that_are_omitted_are_drawn() -> None:
    made = [
        Scenario.generate(seed, origin=ORIGIN, seconds=5, transactions=5, value_capture_type=None) for seed in range(40)
    ]
    assert {one.mode for one in made} == set(MODES)
    assert {one.dialect for one in made} == {"googlesql", "postgresql"}
    assert {one.value_capture_type for one in made} == set(CAPTURE_TYPES)


def test_churn_counts_the_events_of_partitions() -> None:
    kinds: dict[PartitionMode, set[str]] = {
        "IMMUTABLE_KEY_RANGE": {"splits", "merges", "moves"},
        "MUTABLE_KEY_RANGE": {"starts", "ends", "moves"},
    }
    for mode, named in kinds.items():
        assert set(sum((made.churn for made in scenarios(mode)), Counter())) == named


def test_a_scenario_may_have_neither_transactions_nor_churn() -> None:
    made = Scenario.generate(1, origin=ORIGIN, seconds=1, transactions=0, churn=0, first_partitions=1)
    assert made.committed == []
    assert made.history.horizon == ORIGIN + SECOND
    assert len(made.history.partitions) == 1
