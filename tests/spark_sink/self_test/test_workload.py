"""The workload of a self-test: it has what a change stream must be tried with, and its record is exact."""

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_sink.self_test.tables import SCALARS
from spark_sink.self_test.workload import DELETE, INSERT, LARGE, TAG, UPDATE, Committed, WorkloadMod
from tests.spark_sink.self_test.planned import TABLES, table_of, workload

SEEDS = st.integers(0, 2**32)


def mods(committed: list[Committed]) -> list[WorkloadMod]:
    return [mod for transaction in committed for mod in transaction.mods]


@settings(max_examples=10)
@given(seed=SEEDS)
def test_the_mods_come_to_the_rows_of_the_model(seed: int) -> None:
    committed, planner = workload(seed)
    rows: dict[str, dict[object, object]] = {}
    for mod in mods(committed):
        held = rows.setdefault(mod.table, {})
        assert (mod.key in held) == (mod.mod_type != INSERT)
        if mod.mod_type == DELETE:
            del held[mod.key]
        else:
            held[mod.key] = dict(mod.row)
    assert rows == planner.rows


@settings(max_examples=10)
@given(seed=SEEDS)
def test_no_row_changes_twice_in_a_transaction_and_an_update_changes_something(seed: int) -> None:
    for transaction in workload(seed)[0]:
        named = [(mod.table, mod.key) for mod in transaction.mods]
        assert len(set(named)) == len(named)
        assert all(mod.changed for mod in transaction.mods if mod.mod_type == UPDATE)


@settings(max_examples=10)
@given(seed=SEEDS)
def test_it_has_a_tag_a_large_transaction_several_tables_nulls_and_deletes_of_child_rows(seed: int) -> None:
    committed, _ = workload(seed)
    assert any(one.tag == TAG and len({mod.table for mod in one.mods}) > 2 for one in committed)
    assert any(len(one.mods) >= LARGE for one in committed)
    assert any(mod.is_cascade for mod in mods(committed))
    assert any(mod.mod_type == INSERT and set(map(mod.row.get, mod.changed)) == {None} for mod in mods(committed))


def test_it_has_every_type_as_a_value_and_within_an_array() -> None:
    written = {
        name
        for mod in mods(workload(0)[0])
        if mod.table == table_of("types").name
        for name, value in mod.row.items()
        if value not in (None, [])
    }
    kinds = [kind.lower() for kind in SCALARS]
    assert written == {"id", *(f"a_{kind}" for kind in kinds), *(f"all_{kind}" for kind in kinds)}
    assert {mod.table for mod in mods(workload(0)[0])} == set(TABLES)


def test_on_an_emulator_no_array_holds_null() -> None:
    values = [value for mod in mods(workload(0, is_emulator=True)[0]) for value in mod.row.values()]
    assert not any(isinstance(value, list) and None in value for value in values)
    values = [value for mod in mods(workload(0)[0]) for value in mod.row.values()]
    assert any(isinstance(value, list) and None in value for value in values)
