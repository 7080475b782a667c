"""The transactions of a scenario, and the records that report them."""

from collections import Counter, defaultdict
from itertools import groupby, pairwise

import pytest

from connector.core.timestamps import MINUTE
from emulator.scenario.history import (
    Change,
    History,
    PartitionMode,
)
from emulator.scenario.transactions import rfc3339
from emulator.workload.journal import CommittedMod, Row
from emulator.workload.tables import TABLES
from emulator.workload.values import Value
from tests.emulator.scenario.drawn import (
    ORIGIN,
    by_seed_and_mode,
    changes_by_token,
    key_of,
    over_modes,
    scenario,
    scenarios,
)


def transactions(history: History) -> dict[str, list[tuple[str, Change]]]:
    found: dict[str, list[tuple[str, Change]]] = defaultdict(list)
    for token, change in changes_by_token(history):
        found[change.server_transaction_id].append((token, change))
    return found


def reported(mod: CommittedMod, capture: str) -> tuple[Row, Row, set[str]]:
    """The row that the capture type's definition reports: new values, old values, columns outside the key."""
    has_old = capture in ("OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")
    if mod.mod_type == "DELETE":
        return {}, mod.old_row if has_old else {}, set() if capture == "NEW_VALUES" else set(mod.old_row)
    new = mod.row if capture.startswith("NEW_ROW") else mod.new_values
    old = {name: mod.old_row[name] for name in mod.new_values} if has_old and mod.mod_type == "UPDATE" else {}
    return new, old, set(new)


@by_seed_and_mode
def test_the_records_report_the_committed_mods_in_commit_order(seed: int, mode: PartitionMode) -> None:
    made = scenario(seed, mode)
    reported_mods = [
        (change.commit_timestamp, change.server_transaction_id, change, mod)
        for change in made.history.in_commit_order()
        for mod in change.mods
    ]
    assert len(reported_mods) == len(made.committed)
    ordinals: dict[str, int] = {}
    for (at, transaction, change, mod), done in zip(reported_mods, made.committed, strict=True):
        new, old, columns = reported(done, made.value_capture_type)
        assert (at, change.table, change.mod_type) == (done.commit_timestamp_ns, done.table, done.mod_type)
        assert (mod.keys, mod.new_values, mod.old_values) == (done.keys, new, old)
        assert {column.name for column in change.columns} == columns | set(done.keys)
        assert change.value_capture_type == made.value_capture_type
        assert ordinals.setdefault(transaction, len(ordinals)) == done.transaction


@by_seed_and_mode
def test_the_committed_mods_replayed_give_consistent_contents(seed: int, mode: PartitionMode) -> None:
    tables = {table.name: table for table in TABLES}
    rows: dict[tuple[Value, ...], Row] = {}
    for _, mods in groupby(scenario(seed, mode).committed, key=lambda mod: mod.transaction):
        for mod in mods:
            key = key_of(mod.table, mod.keys)
            if mod.mod_type == "INSERT":
                assert key not in rows
                assert not mod.old_row
                assert mod.row == mod.new_values
                parent = tables[mod.table].parent
                assert parent is None or (parent, *key[1 : 1 + tables[parent].key_length]) in rows
            else:
                before = rows.pop(key)
                assert mod.old_row in (before, {**before, "Added1": None})
            if mod.mod_type == "UPDATE":
                assert mod.row == {**mod.old_row, **mod.new_values}
            if mod.mod_type != "DELETE":
                rows[key] = mod.row
        for table in TABLES:
            assert table.parent is None or all(
                (table.parent, *key[1 : 1 + tables[table.parent].key_length]) in rows
                for key in rows
                if key[0] == table.name
            )


@by_seed_and_mode
def test_a_transactions_records_have_its_number_of_records_and_partitions(seed: int, mode: PartitionMode) -> None:
    for records in transactions(scenario(seed, mode).history).values():
        tokens = {token for token, _ in records}
        assert len({int(change.record_sequence) for _, change in records}) == len(records)
        shared = {
            (
                change.commit_timestamp,
                change.number_of_records_in_transaction,
                change.number_of_partitions_in_transaction,
                change.transaction_tag,
                change.is_system_transaction,
            )
            for _, change in records
        }
        assert [entry[1:3] for entry in shared] == [(len(records), len(tokens))]
        for token in tokens:
            own = [change for where, change in records if where == token]
            assert [change.is_last_record_in_transaction_in_partition for change in own] == [
                *[False] * (len(own) - 1),
                True,
            ]


@over_modes
def test_transactions_of_one_timestamp_write_no_common_rows_or_parents(mode: PartitionMode) -> None:
    lengths = {table.name: table.key_length for table in TABLES}
    parents = {table.name: table.parent for table in TABLES}
    shared = 0
    for made in scenarios(mode):
        for _, group in groupby(made.committed, key=lambda mod: mod.commit_timestamp_ns):
            mods = list(group)
            writers = {key_of(mod.table, mod.keys): mod.transaction for mod in mods}
            assert len(writers) == len(mods)
            shared += len(set(writers.values())) > 1
            for mod in mods:
                parent = parents[mod.table]
                if parent is not None:
                    key = (parent, *list(mod.keys.values())[: lengths[parent]])
                    assert writers.get(key, mod.transaction) == mod.transaction
    assert shared > 50


@over_modes
def test_commit_timestamps_include_the_edge_cases_of_readers(mode: PartitionMode) -> None:
    met: Counter[str] = Counter()
    for made in scenarios(mode):
        for partition in made.history.partitions.values():
            for event in partition.events:
                if isinstance(event, Change):
                    met["at the start"] += event.timestamp == partition.start
                    met["at the last instant"] += event.timestamp + 1 == partition.end
        times = sorted({mod.commit_timestamp_ns for mod in made.committed})
        met["a nanosecond apart"] += sum(other - one == 1 for one, other in pairwise(times))
        met["a minute's last"] += sum(at % MINUTE == MINUTE - 1 for at in times)
        met["a minute's first"] += sum(at % MINUTE == 0 for at in times)
    assert set(+met) == {
        "at the start",
        "at the last instant",
        "a nanosecond apart",
        "a minute's last",
        "a minute's first",
    }


@over_modes
def test_scenarios_have_what_the_official_emulator_cannot_report(mode: PartitionMode) -> None:
    met: Counter[str] = Counter()
    for made in scenarios(mode):
        for change in made.history.changes():
            met["several partitions"] += change.number_of_partitions_in_transaction > 1
            met["several mods"] += len(change.mods) > 1
            met["tag"] += change.transaction_tag != ""
            met["system"] += change.is_system_transaction
            met["gaps"] += int(change.record_sequence) >= change.number_of_records_in_transaction
            met["no zeros"] += len(change.record_sequence) < 8
            for mod in change.mods:
                for column in change.columns:
                    value = mod.new_values.get(column.name)
                    met["NaN"] += value == "NaN" and column.code.startswith("FLOAT")
                    met["NULL element"] += isinstance(value, list) and None in value
                    met["nanoseconds"] += column.code == "TIMESTAMP" and len(str(value)) == 30 and not column.array
    missing = {"no zeros"} if mode == "MUTABLE_KEY_RANGE" else set()
    assert {name for name, count in met.items() if not count} == missing


@over_modes
def test_system_transactions_only_delete(mode: PartitionMode) -> None:
    for made in scenarios(mode):
        for change in made.history.changes():
            assert not change.is_system_transaction or change.mod_type == "DELETE"


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (ORIGIN, "2023-11-14T22:13:20.123456789Z"),
        (1_500_000_000, "1970-01-01T00:00:01.5Z"),
    ],
)
def test_a_timestamp_is_written_without_trailing_zeros(instant: int, text: str) -> None:
    assert rfc3339(instant) == text
