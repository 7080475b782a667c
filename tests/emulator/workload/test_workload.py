import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import ServiceUnavailable
from google.cloud.spanner_v1.batch import Batch

from emulator import CommittedMod, Emulator, OutcomeUnknownError, SampleDatabase, Workload, by_transaction, read_journal
from emulator.workload.tables import quoted
from tests.emulator.stream_reader import SeenMod, now, read_all

pytestmark = pytest.mark.emulator


def wanted(mod: CommittedMod, capture: str) -> str:
    """Returns what the change stream must report of a committed mod, as text that can be compared."""
    new = mod.row if capture == "NEW_ROW" else mod.new_values
    old: Any = {}
    if capture == "OLD_AND_NEW_VALUES":
        old = mod.old_row if mod.mod_type == "DELETE" else {name: mod.old_row[name] for name in new if mod.old_row}
    return text(mod.commit_timestamp_ns, mod.table, mod.mod_type, mod.keys, new, old)


def found(mod: SeenMod) -> str:
    return text(mod.commit_timestamp_ns, mod.table, mod.mod_type, mod.keys, mod.new_values, mod.old_values)


def differences(lost: Counter[str], foreign: Counter[str]) -> list[object]:
    """Returns the first few mods that differ; of two mods of one row only the columns that differ."""
    reported: list[object] = []
    for mine in sorted(lost.elements())[:3]:
        parts = json.loads(mine)
        theirs = next((other for other in map(json.loads, foreign) if other[:4] == parts[:4]), None)
        reported.append(parts[:4])
        for mine_values, their_values in zip(parts[4:], theirs[4:] if theirs else (), strict=False):
            names = {*mine_values, *their_values}
            reported += [
                (name, mine_values.get(name), their_values.get(name))
                for name in sorted(names)
                if mine_values.get(name, "absent") != their_values.get(name, "absent")
            ]
    return reported + sorted(foreign.elements())[:1]


def text(*parts: Any) -> str:
    return json.dumps(parts, sort_keys=True)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("capture", ["NEW_ROW", "NEW_VALUES", "OLD_AND_NEW_VALUES"])
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_the_change_stream_reports_what_the_workload_says_it_committed(
    emulator: Emulator, dialect: str, capture: str
) -> None:
    sample = SampleDatabase.create(emulator.host, dialect=dialect, value_capture_type=capture)
    start = now(sample)
    workload = Workload(sample, seed=11, rows_per_table=60)
    workload.run(mods=900)
    seen = Counter(map(found, read_all(sample, start, now(sample))))
    committed = Counter(wanted(mod, capture) for mod in workload.committed)
    assert differences(committed - seen, seen - committed) == []
    assert {mod.mod_type for mod in workload.committed} == {"INSERT", "UPDATE", "DELETE"}
    assert {mod.table for mod in workload.committed} == {table.name for table in sample.tables}
    sample.drop()


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_the_tables_hold_the_rows_that_the_workload_says(emulator: Emulator, dialect: str) -> None:
    sample = SampleDatabase.create(emulator.host, dialect=dialect)
    workload = Workload(sample, seed=12, rows_per_table=40)
    workload.run(mods=600)
    for table in sample.tables:
        names = ", ".join(quoted(column.name, sample.dialect) for column in table.key)
        with sample.database.snapshot() as snapshot:
            rows = list(
                snapshot.execute_sql(f"SELECT {names} FROM {quoted(table.name, sample.dialect)}", lazy_decode=True)
            )
        keys = Counter(text([_plain(value) for value in row]) for row in rows)
        assert keys == Counter(text(list(key)) for key in workload.rows(table.name)), table.name
    sample.drop()


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    return None if kind == "null_value" else getattr(value, kind)


def test_the_same_seed_commits_the_same_transactions(emulator: Emulator) -> None:
    runs = []
    for _ in range(2):
        sample = SampleDatabase.create(emulator.host)
        workload = Workload(sample, seed=13)
        workload.run(mods=100)
        runs.append([(mod.transaction, mod.table, mod.mod_type, mod.keys, mod.row) for mod in workload.committed])
        sample.drop()
    assert runs[0] == runs[1]


def test_transactions_are_of_one_to_many_mods_in_several_tables(emulator: Emulator) -> None:
    sample = SampleDatabase.create(emulator.host)
    workload = Workload(sample, seed=14, average_size=12.0)
    workload.run(mods=600)
    groups = by_transaction(workload.committed).values()
    assert max(map(len, groups)) > 30
    assert any(len({mod.table for mod in group}) > 3 for group in groups)
    sample.drop()


def test_deleting_a_parent_reports_its_children_too(emulator: Emulator) -> None:
    sample = SampleDatabase.create(emulator.host)
    workload = Workload(sample, seed=15, rows_per_table=30)
    workload.run(mods=800)
    groups = by_transaction(workload.committed).values()
    cascades = [
        (parent, child)
        for group in groups
        for parent in group
        for child in group
        if (parent.table, parent.mod_type, child.table, child.mod_type) == ("Singers", "DELETE", "Albums", "DELETE")
        and child.keys["SingerId"] == parent.keys["SingerId"]
    ]
    assert cascades
    sample.drop()


def test_a_journal_has_the_committed_mods_and_those_in_doubt(emulator: Emulator, tmp_path: Path) -> None:
    sample = SampleDatabase.create(emulator.host)
    path = tmp_path / "journal.jsonl"
    workload = Workload(sample, seed=16, journal=path)
    workload.run(mods=50)
    done, doubt = read_journal(path)
    assert done == workload.committed
    assert doubt == []
    workload.close()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) + lines[-1][:10])
    done, doubt = read_journal(path)
    assert len(done) + len(doubt) == len(workload.committed)
    assert doubt
    sample.drop()


def test_a_commit_of_unknown_outcome_is_not_recorded_and_ends_the_workload(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = SampleDatabase.create(emulator.host)
    workload = Workload(sample, seed=17)
    workload.commit_one()
    before = workload.committed

    def breaks(self: Batch, **_options: object) -> None:
        raise ServiceUnavailable("the connection broke")

    monkeypatch.setattr(Batch, "commit", breaks)
    with pytest.raises(OutcomeUnknownError, match="may or may not"):
        workload.run(mods=100)
    monkeypatch.undo()
    with pytest.raises(OutcomeUnknownError):
        workload.commit_one()
    assert workload.committed == before
    sample.drop()


def test_a_run_can_be_stopped_and_watched_from_another_thread(emulator: Emulator) -> None:
    sample = SampleDatabase.create(emulator.host)
    workload = Workload(sample, seed=18)
    stop = threading.Event()
    thread = threading.Thread(target=workload.run, kwargs={"stop": stop, "rate": 500.0})
    thread.start()
    while len(workload.committed_since(0)) < 50:
        workload.rows("Singers")
    stop.set()
    thread.join(timeout=300)
    assert not thread.is_alive()
    sample.drop()


def test_a_run_keeps_its_rate_in_mods_per_second() -> None:
    ticks = iter(range(10_000))
    times: list[float] = []

    class Counting(Workload):
        def commit_one(self, *, most: int = 60) -> tuple[CommittedMod, ...]:
            times.append(float(next(ticks)))
            return (CommittedMod(0, 0, "T", "INSERT", {}, {}, {}, {}),) * 2

    clock = iter(float(second) for second in range(10_000))
    sample = SampleDatabase("h", "p", "i", "d", "googlesql", "s", "NEW_ROW", None, None)  # type: ignore[arg-type]
    workload = Counting(sample, seed=1, clock=lambda: next(clock))

    class Stopwatch(threading.Event):
        waited = 0.0

        def wait(self, timeout: float | None = None) -> bool:
            Stopwatch.waited += timeout or 0.0
            return False

    workload.run(seconds=20.0, rate=1.0, stop=Stopwatch())
    assert 9 <= len(times) <= 11
    assert Stopwatch.waited > 0


def test_a_run_without_a_bound_is_rejected() -> None:
    sample = SampleDatabase("h", "p", "i", "d", "googlesql", "s", "NEW_ROW", None, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a bound"):
        Workload(sample, seed=1).run()
