from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import groupby, pairwise
from random import Random
from typing import get_args

import pytest

from connector.core.timestamps import MINUTE, SECOND
from emulator.scenario.capture import CAPTURE_TYPES
from emulator.scenario.history import (
    Change,
    Children,
    History,
    Partition,
    PartitionEnd,
    PartitionEvent,
    PartitionMode,
    PartitionStart,
)
from emulator.scenario.scenario import Scenario, steady
from emulator.scenario.timelines import WHOLE, Timelines, instants, timelines
from emulator.scenario.transactions import rfc3339
from emulator.workload.journal import CommittedMod, Row
from emulator.workload.tables import TABLES
from emulator.workload.values import Value

ORIGIN = 1_700_000_000_123_456_789
MODES: tuple[PartitionMode, ...] = get_args(PartitionMode)
SEEDS = range(24)

by_seed_and_mode = pytest.mark.parametrize(
    ("seed", "mode"), [(seed, mode) for seed in SEEDS for mode in MODES], ids=lambda value: str(value)
)
over_modes = pytest.mark.parametrize("mode", MODES)


@cache
def scenario(seed: int, mode: PartitionMode) -> Scenario:
    """A scenario; the seeds go through both dialects and all value capture types."""
    return Scenario.generate(
        seed,
        origin=ORIGIN,
        seconds=(0.000_002, 5, 150)[seed % 3],
        mode=mode,
        dialect="postgresql" if seed % 2 else "googlesql",
        value_capture_type=CAPTURE_TYPES[seed // 2 % 4],
        transactions=120,
        churn=16,
        first_partitions=1 + seed % 4,
    )


@cache
def drawn_timelines(seed: int, mode: PartitionMode) -> Timelines:
    seconds = (0.000_002, 5, 150)[seed % 3]
    return timelines(Random(seed), mode, ORIGIN, ORIGIN + int(seconds * SECOND), churn=30, first_partitions=3)


def scenarios(mode: PartitionMode) -> list[Scenario]:
    return [scenario(seed, mode) for seed in SEEDS]


def changes_by_token(history: History) -> Iterator[tuple[str, Change]]:
    for token, partition in history.partitions.items():
        for event in partition.events:
            if isinstance(event, Change):
                yield token, event


def transactions(history: History) -> dict[str, list[tuple[str, Change]]]:
    found: dict[str, list[tuple[str, Change]]] = defaultdict(list)
    for token, change in changes_by_token(history):
        found[change.server_transaction_id].append((token, change))
    return found


def key_of(table: str, keys: Row) -> tuple[Value, ...]:
    return (table, *keys.values())


def reported(mod: CommittedMod, capture: str) -> tuple[Row, Row, set[str]]:
    """What the capture type's definition says is reported: new values, old values, columns outside the key."""
    has_old = capture in ("OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")
    if mod.mod_type == "DELETE":
        return {}, mod.old_row if has_old else {}, set() if capture == "NEW_VALUES" else set(mod.old_row)
    new = mod.row if capture.startswith("NEW_ROW") else mod.new_values
    old = {name: mod.old_row[name] for name in mod.new_values} if has_old and mod.mod_type == "UPDATE" else {}
    return new, old, set(new)


@by_seed_and_mode
def test_what_was_committed_is_what_the_records_report_in_commit_order(seed: int, mode: PartitionMode) -> None:
    made = scenario(seed, mode)
    told = [
        (change.commit_timestamp, change.server_transaction_id, change, mod)
        for change in made.history.in_commit_order()
        for mod in change.mods
    ]
    assert len(told) == len(made.committed)
    ordinals: dict[str, int] = {}
    for (at, transaction, change, mod), done in zip(told, made.committed, strict=True):
        new, old, columns = reported(done, made.value_capture_type)
        assert (at, change.table, change.mod_type) == (done.commit_timestamp_ns, done.table, done.mod_type)
        assert (mod.keys, mod.new_values, mod.old_values) == (done.keys, new, old)
        assert {column.name for column in change.columns} == columns | set(done.keys)
        assert change.value_capture_type == made.value_capture_type
        assert ordinals.setdefault(transaction, len(ordinals)) == done.transaction


@by_seed_and_mode
def test_what_was_committed_gives_consistent_contents_when_replayed(seed: int, mode: PartitionMode) -> None:
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
def test_a_transactions_records_count_each_other_and_their_partitions(seed: int, mode: PartitionMode) -> None:
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


@by_seed_and_mode
def test_a_partitions_events_lie_in_its_life_in_order(seed: int, mode: PartitionMode) -> None:
    made = scenario(seed, mode).history
    for partition in made.partitions.values():
        stamps = [event.timestamp for event in partition.events]
        assert stamps == sorted(stamps)
        assert partition.start <= made.horizon
        for event in partition.events:
            if isinstance(event, Children):
                assert event.timestamp == partition.end
            else:
                assert partition.covers(event.timestamp)
                assert event.timestamp <= made.horizon
        for _, group in groupby(partition.events, key=lambda event: event.timestamp):
            instant = list(group)
            names = [event.server_transaction_id for event in instant if isinstance(event, Change)]
            assert len(list(groupby(names))) == len(set(names)), "a transaction's records stand together"
            for name in set(names):
                assert_increasing(
                    [
                        event.record_sequence
                        for event in instant
                        if isinstance(event, Change) and event.server_transaction_id == name
                    ]
                )
            if mode == "MUTABLE_KEY_RANGE":
                assert_increasing([event.record_sequence for event in instant])


def assert_increasing(sequences: list[str]) -> None:
    numbers = [int(sequence) for sequence in sequences]
    assert all(one < other for one, other in pairwise(numbers))


@by_seed_and_mode
def test_every_partition_is_announced_and_found_from_the_start(seed: int, mode: PartitionMode) -> None:
    made = scenario(seed, mode).history
    found: list[str] = []
    for record in made.initial(ORIGIN):
        found += tokens_of(record)
    assert {token for token, partition in made.partitions.items() if partition.start == ORIGIN} == set(found)
    for token in found:
        for event in made.partitions[token].events:
            for other in tokens_of(event):
                assert made.partitions[other].start == event.timestamp
                if other not in found:
                    found.append(other)
    assert sorted(found) == sorted(made.partitions)


def tokens_of(event: object) -> list[str]:
    if isinstance(event, Children):
        return [child.token for child in event.children]
    return list(event.tokens) if isinstance(event, PartitionStart) else []


@pytest.mark.parametrize("seed", SEEDS)
def test_each_parent_announces_each_of_its_children_once_and_names_all_its_parents(seed: int) -> None:
    made = scenario(seed, "IMMUTABLE_KEY_RANGE").history
    for partition in made.partitions.values():
        announced = [child for event in partition.events if isinstance(event, Children) for child in event.children]
        expected = [other for other in made.partitions.values() if partition.token in other.parents]
        assert Counter(child.token for child in announced) == Counter(other.token for other in expected)
        assert all(child.parents == made.partitions[child.token].parents for child in announced)
        assert bool(announced) == (partition.end is not None)
        assert all(other.start == partition.end for other in expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_moves_are_told_on_both_sides_and_an_end_is_the_last_record(seed: int) -> None:
    made = scenario(seed, "MUTABLE_KEY_RANGE").history
    out, into = set(), set()
    for partition in made.partitions.values():
        assert partition.parents == ()
        for event in partition.events:
            if isinstance(event, PartitionEvent):
                assert event.token == partition.token
                out |= {(event.timestamp, event.token, other) for other in event.destinations}
                into |= {(event.timestamp, other, event.token) for other in event.sources}
        ends = [event for event in partition.events if isinstance(event, PartitionEnd)]
        assert bool(ends) == (partition.end is not None)
        assert partition.end is None or (partition.events[-1] is ends[0] and len(ends) == 1)
        assert partition.end is None or ends[0] == PartitionEnd(
            partition.end - 1, ends[0].record_sequence, partition.token
        )
    assert out == into


@by_seed_and_mode
def test_a_key_changes_on_one_partition_at_a_time_and_goes_where_its_keys_go(seed: int, mode: PartitionMode) -> None:
    made = scenario(seed, mode).history
    seen: dict[tuple[Value, ...], list[tuple[int, str]]] = defaultdict(list)
    for token, change in changes_by_token(made):
        for mod in change.mods:
            seen[key_of(change.table, mod.keys)].append((change.commit_timestamp, token))
    for visits in seen.values():
        visits.sort()
        assert len({at for at, _ in visits}) == len(visits), "a row changes once in an instant"
        for (at, source), (later, destination) in pairwise(visits):
            assert destination in heirs(made, source, at, later)


def heirs(history: History, token: str, first: int, last: int) -> set[str]:
    """Where keys that are on a partition at `first` may be at `last`."""
    reached: dict[str, int] = {token: first}
    queue = [token]
    while queue:
        partition = history.partitions[queue.pop()]
        for event in partition.events:
            if not reached[partition.token] <= event.timestamp <= last:
                continue
            for other in event.destinations if isinstance(event, PartitionEvent) else children_of(partition, event):
                if reached.get(other, last + 1) > event.timestamp:
                    reached[other] = event.timestamp
                    queue.append(other)
    return {other for other in reached if history.partitions[other].covers(last)}


def children_of(partition: Partition, event: object) -> list[str]:
    return tokens_of(event) if isinstance(event, Children) and event.timestamp == partition.end else []


@by_seed_and_mode
def test_the_partitions_alive_at_an_instant_own_each_place_once(seed: int, mode: PartitionMode) -> None:
    drawn = drawn_timelines(seed, mode)
    for at in {mark + step for mark in drawn.marks() for step in (-1, 0, 1)} - {ORIGIN - 1}:
        owned = sorted(
            (span.low, span.high, span.token)
            for span in drawn.spans
            if span.since <= at and (span.until is None or at < span.until)
        )
        assert (owned[0][0], owned[-1][1]) == (0, WHOLE)
        assert all(one[1] == other[0] for one, other in pairwise(owned))
        for low, high, token in owned:
            assert low < high
            assert drawn.partitions[token].covers(at)
            assert {drawn.owner(low, at), drawn.owner(high - 1, at)} == {token}


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_that_move_leave_the_changes_of_that_instant_on_the_source(seed: int) -> None:
    drawn = drawn_timelines(seed, "MUTABLE_KEY_RANGE")
    moves = {
        (notice.token, destination, notice.said.timestamp)
        for notice in drawn.notices
        if isinstance(notice.said, PartitionEvent)
        for destination in notice.said.destinations
    }
    for span in drawn.spans:
        for other in drawn.spans:
            if (
                span.until is not None
                and other.since == span.until
                and overlap(span.low, span.high, other.low, other.high)
            ):
                after = (span.token, other.token, span.until - 1) in moves
                starts = drawn.partitions[other.token].start == span.until
                assert after or (starts and (span.token, other.token, span.until) in moves)


def overlap(low: int, high: int, other_low: int, other_high: int) -> bool:
    return max(low, other_low) < min(high, other_high)


@over_modes
def test_transactions_of_one_instant_write_neither_the_same_rows_nor_each_others_parents(mode: PartitionMode) -> None:
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
def test_commit_timestamps_fall_where_readers_err(mode: PartitionMode) -> None:
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
def test_there_is_what_the_official_emulator_never_shows(mode: PartitionMode) -> None:
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


def test_columns_are_listed_as_the_dialect_has_them() -> None:
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
def test_a_column_is_added_at_an_instant_and_may_split_a_transactions_records(mode: PartitionMode) -> None:
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


def test_without_a_schema_change_the_tables_are_the_samples() -> None:
    assert Scenario.generate(1, origin=ORIGIN, seconds=5, schema_change=False).tables == TABLES


def test_a_seed_gives_the_same_scenario_again_and_another_gives_another() -> None:
    def made(seed: int) -> Scenario:
        return Scenario.generate(seed, origin=ORIGIN, seconds=5, value_capture_type=None)

    assert made(3) == made(3)
    assert made(3) != made(4)


def test_what_is_left_open_is_drawn() -> None:
    made = [
        Scenario.generate(seed, origin=ORIGIN, seconds=5, transactions=5, value_capture_type=None) for seed in range(40)
    ]
    assert {one.mode for one in made} == set(MODES)
    assert {one.dialect for one in made} == {"googlesql", "postgresql"}
    assert {one.value_capture_type for one in made} == set(CAPTURE_TYPES)


def test_churn_counts_what_became_of_partitions() -> None:
    kinds: dict[PartitionMode, set[str]] = {
        "IMMUTABLE_KEY_RANGE": {"splits", "merges", "moves"},
        "MUTABLE_KEY_RANGE": {"starts", "ends", "moves"},
    }
    for mode, named in kinds.items():
        assert set(sum((made.churn for made in scenarios(mode)), Counter())) == named


def test_a_scenario_may_be_without_transactions_or_churn() -> None:
    made = Scenario.generate(1, origin=ORIGIN, seconds=1, transactions=0, churn=0, first_partitions=1)
    assert made.committed == []
    assert made.history.horizon == ORIGIN + SECOND
    assert len(made.history.partitions) == 1


def test_instants_are_in_order_and_within_their_bounds() -> None:
    drawn = instants(Random(1), ORIGIN, ORIGIN + 10, 500, [ORIGIN, ORIGIN + 10])
    assert drawn == sorted(drawn)
    assert (drawn[0], drawn[-1]) == (ORIGIN, ORIGIN + 10)


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (ORIGIN, "2023-11-14T22:13:20.123456789Z"),
        (1_500_000_000, "1970-01-01T00:00:01.5Z"),
    ],
)
def test_a_timestamp_is_written_with_what_precision_there_is(instant: int, text: str) -> None:
    assert rfc3339(instant) == text


@over_modes
def test_a_steady_stream_keeps_its_pace_and_the_number_of_its_partitions(mode: PartitionMode) -> None:
    made = steady(
        1,
        origin=ORIGIN,
        seconds=60,
        partitions=100,
        records_per_second_per_partition=1,
        mods_per_record=3,
        churn_per_minute=0.5,
        mode=mode,
    )
    changes = list(made.history.changes())
    assert len(changes) == pytest.approx(6000, rel=0.05)
    assert len({change.server_transaction_id for change in changes}) == len(changes)
    assert len({id(change.mods) for change in changes}) <= 64, "records share their mods"
    assert len(made.committed) == 3 * len(changes)
    assert made.churn[{"IMMUTABLE_KEY_RANGE": "splits", "MUTABLE_KEY_RANGE": "starts"}[mode]] == 50
    for at in range(ORIGIN, ORIGIN + 60 * SECOND, 3 * SECOND):
        assert 100 <= len(made.history.initial(at)) <= 101
    for partition in made.history.partitions.values():
        stamps = [event.timestamp for event in partition.events]
        assert stamps == sorted(stamps)
        assert all(
            partition.covers(event.timestamp) or (isinstance(event, Children) and event.timestamp == partition.end)
            for event in partition.events
        )
        assert partition.end is None or isinstance(partition.events[-1], Children | PartitionEnd)


def test_a_steady_stream_may_be_idle() -> None:
    made = steady(1, origin=ORIGIN, seconds=9, partitions=3, records_per_second_per_partition=0)
    assert made.committed == []
    assert len(made.history.initial(ORIGIN)) == 3
